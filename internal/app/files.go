package app

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/pooler"
)

// CheckFiles opens the files that the settings of a command name, which [config.Config.Check] does
// not, and reports what is wrong with them. It connects to nothing. The error is a *config.Error.
func CheckFiles(c config.Config, command string) error {
	var found config.Error
	add := func(what string, err error) {
		for _, e := range separate(err) {
			found.Problems = append(found.Problems, what+": "+e.Error())
		}
	}
	add("database", pooler.CheckFiles(c.Database))
	if command == "relay" || command == "serve" {
		if file, ok := FileOf(c.Database); ok {
			_, err := os.Stat(file)
			add("database", err)
		}
		for _, s := range c.AllSinks() {
			if s.Driver.Files != nil && (s.Driver.Check == nil || s.Driver.Check(s.URL) == nil) {
				add("sink "+s.Name, s.Driver.Files(s.URL))
			}
		}
		checkExportKeys(add)
	}
	add("SSL_CERT_FILE", checkAuthority(os.Getenv("SSL_CERT_FILE")))
	if len(found.Problems) == 0 {
		return nil
	}
	return &found
}

// checkExportKeys checks the certificates and keys of the variables of OpenTelemetry.
func checkExportKeys(add func(what string, err error)) {
	for _, signal := range []string{"", "TRACES_", "METRICS_"} {
		prefix := "OTEL_EXPORTER_OTLP_" + signal
		add(prefix+"CERTIFICATE", checkAuthority(os.Getenv(prefix+"CERTIFICATE")))
		certificate, key := os.Getenv(prefix+"CLIENT_CERTIFICATE"), os.Getenv(prefix+"CLIENT_KEY")
		if (certificate == "") != (key == "") {
			add(prefix+"CLIENT_CERTIFICATE", errors.New("it and CLIENT_KEY must both be set"))
		} else if key != "" {
			_, err := tls.LoadX509KeyPair(certificate, key)
			add(prefix+"CLIENT_CERTIFICATE", err)
		}
	}
}

// checkAuthority reports what is wrong with a file of certificates of authorities.
func checkAuthority(path string) error {
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	if err == nil && !x509.NewCertPool().AppendCertsFromPEM(text) {
		err = fmt.Errorf("%s contains no certificate in PEM", path)
	}
	return err
}

// separate returns the errors that are joined in err, each with the text that stands before them.
func separate(err error) []error {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		if joined, ok := inner.(interface{ Unwrap() []error }); ok {
			before := strings.TrimSuffix(err.Error(), inner.Error())
			all := slices.Clone(joined.Unwrap())
			for i, e := range all {
				all[i] = fmt.Errorf("%s%w", before, e)
			}
			return all
		}
	}
	if err == nil {
		return nil
	}
	return []error{err}
}
