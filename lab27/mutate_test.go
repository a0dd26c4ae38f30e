package lab27_test

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/framebridge/framebridge/lab27"
)

// mutations know what a bundle is made of: files, lines, members, numbers, words.
var mutations = []struct {
	name   string
	mutate func(r *rand.Rand, files map[string]string, name string)
}{
	{"a bit flipped", func(r *rand.Rand, files map[string]string, name string) {
		b := []byte(files[name])
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		files[name] = string(b)
	}},
	{"a stretch cut out", func(r *rand.Rand, files map[string]string, name string) {
		at := r.IntN(len(files[name]))
		files[name] = files[name][:at] + files[name][min(len(files[name]), at+1+r.IntN(200)):]
	}},
	{"the end cut off", func(r *rand.Rand, files map[string]string, name string) {
		files[name] = files[name][:r.IntN(len(files[name]))]
	}},
	{"something put in", func(r *rand.Rand, files map[string]string, name string) {
		at := r.IntN(len(files[name]))
		junk := []string{" ", "\n", "0", "\"", "}", "]", ",", "\x00", "\xff", "[[[[[[[[[[[[[[[[[[[[[[", `{"a":`, "-", "e9", "null"}
		files[name] = files[name][:at] + junk[r.IntN(len(junk))] + files[name][at:]
	}},
	{"a line twice", func(r *rand.Rand, files map[string]string, name string) {
		rows := strings.SplitAfter(files[name], "\n")
		at := r.IntN(len(rows))
		files[name] = strings.Join(slices.Insert(rows, at, rows[r.IntN(len(rows))]), "")
	}},
	{"two lines swapped", func(r *rand.Rand, files map[string]string, name string) {
		rows := strings.SplitAfter(files[name], "\n")
		i, j := r.IntN(len(rows)), r.IntN(len(rows))
		rows[i], rows[j] = rows[j], rows[i]
		files[name] = strings.Join(rows, "")
	}},
	{"another number", func(r *rand.Rand, files map[string]string, name string) {
		replaceOne(r, files, name, numbers, hostileNumbers)
	}},
	{"another word", func(r *rand.Rand, files map[string]string, name string) {
		replaceOne(r, files, name, words, []string{`"tail"`, `"complete"`, `"dropped"`, `""`, `"presented"`, `"schema"`, `"\u0000"`, `"` + strings.Repeat("x", 2000) + `"`, "1", "null", "[]", "{}"})
	}},
	{"a member gone", func(r *rand.Rand, files map[string]string, name string) {
		replaceOne(r, files, name, memberPattern, []string{""})
	}},
	{"a member twice", func(r *rand.Rand, files map[string]string, name string) {
		found := memberPattern.FindAllString(files[name], -1)
		replaceOne(r, files, name, memberPattern, []string{strings.Repeat(pick(r, found, ","), 2)})
	}},
	{"two files swapped", func(r *rand.Rand, files map[string]string, name string) {
		other := lab27.BundleFiles[r.IntN(len(lab27.BundleFiles))]
		files[name], files[other] = files[other], files[name]
	}},
	{"a file gone", func(r *rand.Rand, files map[string]string, name string) { delete(files, name) }},
	{"a file empty", func(r *rand.Rand, files map[string]string, name string) { files[name] = "" }},
}

var (
	numbers        = regexp.MustCompile(`-?\d+(\.\d+)?`)
	words          = regexp.MustCompile(`"[^"]*"`)
	memberPattern  = regexp.MustCompile(`,"\w+":[^,{}\[\]]+`)
	hostileNumbers = []string{"-1", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1e3", "0.5", "00", "NaN", "99999999999999999"}
)

func pick(r *rand.Rand, from []string, otherwise string) string {
	if len(from) == 0 {
		return otherwise
	}
	return from[r.IntN(len(from))]
}

func replaceOne(r *rand.Rand, files map[string]string, name string, what *regexp.Regexp, with []string) {
	found := what.FindAllStringIndex(files[name], -1)
	if len(found) == 0 {
		files[name] += with[0] + "x"
		return
	}
	at := found[r.IntN(len(found))]
	files[name] = files[name][:at[0]] + with[r.IntN(len(with))] + files[name][at[1]:]
}

func asFS(files map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, content := range files {
		out[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return out
}

// exercise does with a bundle whatever can be done with one.
func exercise(t *testing.T, f *fixture, files fstest.MapFS) *lab27.Report {
	r := lab27.Validate(files, &f.request)
	if (r.State == lab27.Complete) != (r.Err() == nil) {
		t.Fatalf("%s, yet %v", r.State, r.Err())
	}
	m, err := lab27.Qualify(lab27.MatchInput{Report: r, Frames: f.frames, PrimaryDisplayID: 1, Timebase: timebase})
	if err != nil {
		t.Fatal(err)
	}
	if m.Verdict.Qualified && r.State != lab27.Complete {
		t.Fatalf("qualified on a bundle that is %s", r.State)
	}
	var out bytes.Buffer
	if err := m.WriteLines(&out); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Verdict.JSON(); err != nil {
		t.Fatal(err)
	}
	lab27.Cost(lab27.CostRun{Report: r}, lab27.CostRun{Report: r}, nil)
	return r
}

// rounds is how many mutations are tried: a thousand, or many more where there is time.
func rounds() int {
	if os.Getenv("FRAMEBRIDGE_LONG") == "1" {
		return 50_000
	}
	return 1000
}

func TestAThousandMutatedBundlesAreNeverCalledComplete(t *testing.T) {
	f := newFixture(t, lab27.PurposeStudy, 10)
	whole := f.contents()
	if r := exercise(t, f, asFS(whole)); r.State != lab27.Complete {
		t.Fatalf("%s: %v", r.State, r.Err())
	}
	r := rand.New(rand.NewPCG(27, 140))
	states := map[lab27.State]int{}
	for i := 0; i < rounds(); {
		m := mutations[r.IntN(len(mutations))]
		files := maps.Clone(whole)
		m.mutate(r, files, lab27.BundleFiles[r.IntN(len(lab27.BundleFiles))])
		if maps.Equal(files, whole) {
			continue
		}
		i++
		report := exercise(t, f, asFS(files))
		states[report.State]++
		if report.State == lab27.Complete {
			t.Fatalf("mutation %d, %s, is called complete", i, m.name)
		}
	}
	t.Logf("%v", states)
	if states[lab27.Invalid] < rounds()/2 || states[lab27.Partial] < rounds()/10 {
		t.Errorf("%v: the mutations are not as varied as they were meant to be", states)
	}
}

// Even sealed anew, a row with a hostile number does not pass: every number of a row but the surface's is held against something.
func TestMutatedRowsSealedAnewAreNeverCalledComplete(t *testing.T) {
	r := rand.New(rand.NewPCG(14, 27))
	f := newFixture(t, lab27.PurposeStudy, 10)
	whole := f.contents()
	for i := range rounds() {
		file := []string{"requests.jsonl", "presented.jsonl"}[i%2]
		f.rewrite = func(name, content string) string {
			if name != file {
				return content
			}
			rows := strings.SplitAfter(content, "\n")
			row := 1 + r.IntN(len(rows)-2)
			at := numbers.FindAllStringIndex(rows[row], -1)
			column := r.IntN(len(at))
			for file == "presented.jsonl" && column == 3 {
				column = r.IntN(len(at))
			}
			old := rows[row][at[column][0]:at[column][1]]
			with := append([]string{"7", old + "1", "0" + old}, hostileNumbers...)
			rows[row] = rows[row][:at[column][0]] + with[r.IntN(len(with))] + rows[row][at[column][1]:]
			return strings.Join(rows, "")
		}
		files := f.contents()
		if maps.Equal(files, whole) {
			continue
		}
		if report := exercise(t, f, asFS(files)); report.State == lab27.Complete {
			t.Fatalf("mutation %d of %s is called complete", i, file)
		}
	}
}

// FuzzBundle puts any bytes in the place of one file, sealed anew where it can be.
func FuzzBundle(f *testing.F) {
	base := newFixture(f, lab27.PurposeStudy, 10)
	whole := base.contents()
	for i, name := range lab27.BundleFiles {
		f.Add(uint8(i), []byte(whole[name]))
	}
	f.Add(uint8(2), []byte("[1,\"baseline\",1,2,3,0]"))
	f.Add(uint8(3), []byte("[1,\"baseline\",1,2,3,9223372036.854775807,\"presented\"]\n"))
	f.Fuzz(func(t *testing.T, which uint8, content []byte) {
		name := lab27.BundleFiles[int(which)%len(lab27.BundleFiles)]
		files := maps.Clone(whole)
		if name == lab27.SummaryFile {
			files[name] = string(content)
			if body, _, ok := strings.Cut(files[name], `,"seal":`); ok {
				files[name] = sealed(body)
			}
		} else {
			resealed := *base
			resealed.rewrite = func(n, old string) string {
				if n == name {
					return string(content)
				}
				return old
			}
			files = resealed.contents()
		}
		r := exercise(t, base, asFS(files))
		if r.State == lab27.Complete && (len(r.Submissions) != len(base.submissions) || len(r.Presentations) != len(base.presentations)) {
			t.Fatalf("complete with %d submissions and %d presentations", len(r.Submissions), len(r.Presentations))
		}
	})
}

func FuzzVerdict(f *testing.F) {
	v := newFixture(f, lab27.PurposeStudy, 10).qualify(f).Verdict
	data, err := v.JSON()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := lab27.ParseVerdict(data)
		if err != nil {
			return
		}
		s := lab27.NewStudy([]lab27.StudyRun{{Match: v}})
		if s.Markdown() == "" {
			t.Fatal("no table")
		}
	})
}
