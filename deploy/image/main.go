// Command image makes the container image of outbox from programs that are built already, as an OCI
// layout.
//
// Guaranteed: the same programs and time make the same image, byte for byte, wherever it runs and
// without a registry. An image has the program, certificates of authorities, and a user without
// rights; nothing in it needs to be written.
//
// A module of its own, so that what knows of images is in nobody's go.sum.
package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	program = "usr/bin/outbox"
	roots   = "etc/ssl/certs/ca-certificates.crt"
	// user is by number, since Kubernetes' runAsNonRoot does not look into /etc/passwd.
	user = "65532:65532"
)

func main() {
	var i build
	out := flag.String("out", "", "the `folder` to write the layout into; it must not be there")
	flag.StringVar(&i.version, "version", "", "the `version` that the labels name")
	flag.StringVar(&i.revision, "revision", "", "the `commit` that the labels name")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: SOURCE_DATE_EPOCH=SECONDS image -out FOLDER ARCH=PROGRAM...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := i.write(*out, os.Getenv("SOURCE_DATE_EPOCH"), flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// build is what images have in common.
type build struct {
	version, revision string
	created           time.Time
}

func (b *build) write(out, epoch string, programs []string) error {
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH is %q, want the seconds of the commit", epoch)
	}
	b.created = time.Unix(seconds, 0).UTC()
	if _, err := os.Stat(out); out == "" || !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("write into %q: give a folder with -out that is not there", out)
	}
	if len(programs) == 0 {
		return errors.New("no program is given: want ARCH=PROGRAM, such as amd64=bin/outbox")
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range programs {
		arch, path, ok := strings.Cut(p, "=")
		if !ok || arch != "amd64" && arch != "arm64" {
			return fmt.Errorf("%q is no ARCH=PROGRAM with amd64 or arm64", p)
		}
		image, err := b.image(arch, path)
		if err != nil {
			return fmt.Errorf("make the image for %s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	// The layout names one index, as `podman load` and `skopeo copy --all` look for it.
	path, err := layout.Write(out, empty.Index)
	if err == nil {
		err = path.AppendIndex(index, layout.WithAnnotations(map[string]string{
			"org.opencontainers.image.ref.name": b.version}))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	digest, err := index.Digest()
	fmt.Println(digest)
	return err
}

func (b *build) image(arch, path string) (v1.Image, error) {
	executable, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	content, err := b.files(executable)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(9))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{
		Created: v1.Time{Time: b.created}, CreatedBy: "deploy/image"}})
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, b.config(image, arch))
}

func (b *build) config(image v1.Image, arch string) *v1.ConfigFile {
	config, err := image.ConfigFile()
	if err != nil {
		panic(err) // it was made above
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: b.created}
	config.Config = v1.Config{
		User: user, WorkingDir: "/", Entrypoint: []string{"/" + program},
		Env:        []string{"PATH=/usr/bin"},
		StopSignal: "SIGTERM",
		// Docker's own: OCI has no place for it. It asks at OUTBOX_LISTEN.
		Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/" + program, "ready"}, Interval: 10 * time.Second,
			Timeout: 5 * time.Second, StartPeriod: 30 * time.Second, Retries: 3},
		Labels: map[string]string{
			"org.opencontainers.image.title":         "outbox",
			"org.opencontainers.image.description":   "Transactional outbox: relay, gateway and command line",
			"org.opencontainers.image.source":        "https://github.com/outboxrelay/outbox",
			"org.opencontainers.image.documentation": "https://github.com/outboxrelay/outbox/tree/main/docs",
			"org.opencontainers.image.created":       b.created.Format(time.RFC3339),
			"org.opencontainers.image.version":       b.version,
			"org.opencontainers.image.revision":      b.revision,
		},
	}
	return config
}

// files is the one layer. Folders come before what is in them, and nobody but root may write any of
// it.
func (b *build) files(executable []byte) ([]byte, error) {
	var certificates bytes.Buffer
	for root := range bundle.Roots() {
		if err := pem.Encode(&certificates, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	for _, f := range []struct {
		name string
		mode int64
		data []byte
	}{
		{"etc/", 0o755, nil}, {"etc/group", 0o644, []byte("root:x:0:\noutbox:x:65532:\n")},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/:/sbin/nologin\noutbox:x:65532:65532:outbox:/:/sbin/nologin\n")},
		{"etc/ssl/", 0o755, nil}, {"etc/ssl/certs/", 0o755, nil}, {roots, 0o644, certificates.Bytes()},
		{"usr/", 0o755, nil}, {"usr/bin/", 0o755, nil}, {program, 0o755, executable},
	} {
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: b.created,
			Format: tar.FormatPAX, Typeflag: tar.TypeReg}
		if strings.HasSuffix(f.name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	return content.Bytes(), w.Close()
}
