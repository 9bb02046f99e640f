package browser_test

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/chromedp/chromedp"
)

// shots is the folder that gets the pictures of docs/operations/on-call.md, if they are wanted.
var shots = os.Getenv("OUTBOX_TEST_SHOTS")

// shot takes a picture of what is in the window.
func (p *tab) shot(name string) {
	p.t.Helper()
	if shots == "" {
		return
	}
	p.run(chromedp.Evaluate[chromedp.Void]("scrollTo(0, 0)"))
	picture, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		picture, err = small(picture)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(shots, name+".png"), picture, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// small keeps the most frequent colours of a picture, and takes the nearest of them for the others: half of its bytes.
func small(picture []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	seen, box := map[color.RGBA]int{}, from.Bounds()
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(from.At(x, y)).(color.RGBA) }
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			seen[at(x, y)]++
		}
	}
	often := slices.SortedFunc(maps.Keys(seen), func(a, b color.RGBA) int { return cmp.Compare(seen[b], seen[a]) })
	var palette color.Palette
	for _, c := range often[:min(len(often), 64)] {
		palette = append(palette, c)
	}
	nearest := map[color.RGBA]uint8{}
	for c := range seen {
		nearest[c] = uint8(palette.Index(c)) //nolint:gosec // of 64
	}
	to := image.NewPaletted(box, palette)
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			to.SetColorIndex(x, y, nearest[at(x, y)])
		}
	}
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	err = encoder.Encode(&out, to)
	return out.Bytes(), err
}
