package sim

import (
	"slices"
	"strings"
	"testing"
)

func TestPredicatesBecomeFilters(t *testing.T) {
	for _, c := range []struct {
		text                   string
		subsystems, categories []string
	}{
		{``, nil, nil},
		{`TRUEPREDICATE`, nil, nil},
		{`subsystem == "com.apple.coreanimation"`, []string{"com.apple.coreanimation"}, nil},
		{`(subsystem == "a" AND (category == "b" OR category == "b.Stalls"))`, []string{"a"}, []string{"b", "b.Stalls"}},
		{`subsystem='a'&&category IN {'c', "b",'c'}`, []string{"a"}, []string{"b", "c"}},
		{`(subsystem == "a" AND category == "b") or (subsystem == "a" and category == "c")`, []string{"a"}, []string{"b", "c"}},
		{`subsystem == "a" || subsystem == "b"`, []string{"a", "b"}, nil},
		{`category IN {"b", "c"} AND category IN {"c", "d"}`, nil, []string{"c"}},
	} {
		f, err := parsePredicate(c.text)
		if err != nil || !slices.Equal(f.Subsystems, c.subsystems) || !slices.Equal(f.Categories, c.categories) {
			t.Errorf("%s: %+v, %v", c.text, f, err)
		}
	}
}

func TestPredicatesThatAreNoFilterAreRefused(t *testing.T) {
	for _, text := range []string{
		`subsystem == "a" OR category == "b"`, // neither can be asked for alone
		`(subsystem == "a" AND category == "b") OR (subsystem == "c" AND category == "d")`,
		`subsystem == "a" OR TRUEPREDICATE`,
		`subsystem == "a" AND subsystem == "b"`, // nothing can be both
		`subsystem CONTAINS "a"`, `NOT subsystem == "a"`, `name == "a"`, `subsystem == a`, `subsystem ==`, `subsystem`, `subsystem IN`,
		`subsystem IN {`, `subsystem IN {}`, `subsystem IN {"a"`, `subsystem IN {"a" "b"}`, `(subsystem == "a"`, `subsystem == "a")`,
		`subsystem == "a`, `subsystem == "a\"b"`, `== "a"`, `"a"`, `AND`, `&`, strings.Repeat("(", maxPredicateBytes+1),
	} {
		if f, err := parsePredicate(text); err == nil {
			t.Errorf("%.60s: %+v, want a refusal", text, f)
		}
	}
}

func FuzzPredicate(f *testing.F) {
	f.Add(`(subsystem == "a" AND (category == "b" OR category IN {'c'}))`)
	f.Add(strings.Repeat("(", 100))
	f.Fuzz(func(t *testing.T, text string) {
		filter, err := parsePredicate(text)
		if err == nil && len(filter.Subsystems)+len(filter.Categories) > len(text) {
			t.Errorf("more values than text: %+v", filter)
		}
	})
}
