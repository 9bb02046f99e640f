package browser_test

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/chromedp/chromedp"
)

// shots is the folder that gets the pictures of docs/operations/on-call.md and screens.md, if they
// are wanted.
var shots = os.Getenv("OUTBOX_TEST_SHOTS")

// shot takes a picture of what is in the window.
func (p *tab) shot(name string) {
	p.t.Helper()
	if shots == "" {
		return
	}
	if err := keep(p.picture(), name); err != nil {
		p.t.Fatal(err)
	}
}

// picture is what is in the window.
func (p *tab) picture() image.Image {
	p.t.Helper()
	p.run(chromedp.Evaluate[chromedp.Void]("scrollTo(0, 0)"))
	text, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(text))
	if err != nil {
		p.t.Fatal(err)
	}
	return picture
}

// keep writes a picture.
func keep(picture image.Image, name string) error {
	text, err := small(picture)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(shots, name+".png"), text, 0o600)
}

// beside is pictures in a row.
func beside(pictures []image.Image) image.Image {
	const gap = 24
	box := image.Rectangle{}
	for _, p := range pictures {
		box.Max.X, box.Max.Y = box.Max.X+p.Bounds().Dx()+gap, max(box.Max.Y, p.Bounds().Dy())
	}
	all, x := image.NewRGBA(box), 0
	draw.Draw(all, box, image.NewUniform(color.Gray{0x80}), image.Point{}, draw.Src)
	for _, p := range pictures {
		draw.Draw(all, p.Bounds().Add(image.Pt(x, 0)), p, image.Point{}, draw.Src)
		x += p.Bounds().Dx() + gap
	}
	return all.SubImage(image.Rect(0, 0, box.Max.X-gap, box.Max.Y))
}

// small keeps the most frequent colours of a picture, and takes the nearest of them for the others:
// half of its bytes.
func small(from image.Image) ([]byte, error) {
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
	err := encoder.Encode(&out, to)
	return out.Bytes(), err
}
