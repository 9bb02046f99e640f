package arch

import (
	"fmt"
	"slices"
	"strings"
)

// check returns every breach of the rules that can be seen in the source, one line each.
func check(files []file) []string {
	return slices.Concat(checkLayers(files), checkImports(files), checkFiles(files), checkDocs(files))
}

// place finds the layer of a folder, and the part of it that neighbours may not see.
func place(folder string) (layer, string, bool) {
	for _, l := range layers {
		top, parted := strings.CutSuffix(l.folder, "/*")
		if !below(folder, top) || parted && folder == top {
			continue
		}
		if parted {
			name, _, _ := strings.Cut(strings.TrimPrefix(folder, top+"/"), "/")
			top += "/" + name
		}
		return l, top, true
	}
	return layer{}, "", false
}

func checkLayers(files []file) (found []string) {
	for _, f := range files {
		from, part, known := place(f.folder)
		if !known {
			found = append(found, fmt.Sprintf("%s: folder %s has no place in layers (rules_test.go)", f.path, f.folder))
			continue
		}
		if f.test {
			continue // tests cross layers: a store's runs the engine on it. What they may reach is in payers.
		}
		for _, imported := range f.imports {
			folder, within := folderOf(imported)
			if !within || below(folder, part) {
				continue
			}
			to, _, known := place(folder)
			if !known {
				found = append(found, fmt.Sprintf("%s imports %s, which has no place in layers", f.path, folder))
			} else if to.rank >= from.rank {
				found = append(found, fmt.Sprintf("%s imports %s, which is not below it: %s", f.path, folder, from.reason))
			}
		}
	}
	return found
}

func checkImports(files []file) (found []string) {
	for _, f := range files {
		if f.test {
			continue
		}
		for _, rule := range mayImport {
			if f.folder != rule.folder {
				continue
			}
			for _, imported := range f.imports {
				_, within := folderOf(imported)
				if !within && !standard(imported) && !slices.Contains(rule.modules, imported) {
					found = append(found, fmt.Sprintf("%s imports %s: %s", f.path, imported, rule.reason))
				}
			}
		}
		for _, rule := range importers {
			may := func(folder string) bool { return below(f.folder, folder) }
			of, onlyBelow := strings.CutSuffix(rule.folder, "/*")
			if may(of) || slices.ContainsFunc(rule.importers, may) {
				continue
			}
			for _, imported := range f.imports {
				if folder, within := folderOf(imported); within && below(folder, of) && (!onlyBelow || folder != of) {
					found = append(found, fmt.Sprintf("%s imports %s: %s", f.path, folder, rule.reason))
				}
			}
		}
	}
	return found
}

func checkFiles(files []file) (found []string) {
	var sizes []int
	for _, f := range files {
		if f.inits > 0 {
			found = append(found, f.path+": func init: importing a package must do nothing")
		}
		for _, line := range f.wide {
			found = append(found, fmt.Sprintf("%s:%d: more than %d columns", f.path, line, maxColumns))
		}
		if f.test {
			continue // and so the output of an example is as it is
		}
		for _, line := range f.wordy {
			found = append(found, fmt.Sprintf("%s:%d: prose of more than %d columns", f.path, line, maxProse))
		}
		sizes = append(sizes, f.lines)
		if f.lines > maxLines {
			found = append(found, fmt.Sprintf("%s: %d lines, more than %d", f.path, f.lines, maxLines))
		}
		if _, may := freshContexts[f.folder]; may || f.pkg == "main" {
			continue
		}
		for _, line := range f.fresh {
			found = append(found, fmt.Sprintf("%s:%d: a context of its own cannot be cancelled by the caller", f.path, line))
		}
	}
	slices.Sort(sizes)
	if len(sizes) > 0 && sizes[len(sizes)/2] > medianLines {
		found = append(found, fmt.Sprintf("the median file has %d lines, more than %d", sizes[len(sizes)/2], medianLines))
	}
	return found
}

// checkDocs wants one package comment in a folder: none explains nothing, two contradict each other
// sooner or later.
func checkDocs(files []file) (found []string) {
	docs := map[string][]string{}
	for _, f := range files {
		in := docs[f.folder]
		if f.doc != "" {
			in = append(in, f.path)
		}
		docs[f.folder] = in // also when empty: a folder without a comment is what we look for
		if f.doc != "" && !strings.HasPrefix(f.doc, "Package "+f.pkg+" ") && !strings.HasPrefix(f.doc, "Command ") {
			found = append(found, fmt.Sprintf("%s: the package comment does not begin with \"Package %s\" or \"Command\"",
				f.path, f.pkg))
		}
	}
	for folder, in := range docs {
		if len(in) != 1 {
			found = append(found, fmt.Sprintf("folder %s: %d package comments %v, want one", folder, len(in), in))
		}
	}
	return found
}
