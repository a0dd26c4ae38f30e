package lab27

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/framebridge/framebridge/internal/jsonline"
)

// Purpose is why a run is made.
type Purpose string

const (
	PurposeFormal    Purpose = "formal"
	PurposeStudy     Purpose = "study"
	PurposeCostOff   Purpose = "cost-off" // the same stimulus without the reference
	PurposeCostOn    Purpose = "cost-on"
	PurposeRehearsal Purpose = "rehearsal"
)

var purposes = []Purpose{PurposeFormal, PurposeStudy, PurposeCostOff, PurposeCostOn, PurposeRehearsal}

const (
	RequestSchema   = "lab27.request/1"
	MaxRequestLife  = 10 * time.Minute
	MaxRequestBytes = 4096 // one has 500
)

// Request asks the app for one run. The app consumes it before it starts, so that a nonce runs at most once.
type Request struct {
	RunName             string // new, never used before; letters, digits, '.', '_', '-'
	Recipe              string
	DurationPermille    int64 // 1000 = the whole recipe
	ReferenceEnabled    bool
	Purpose             Purpose
	AppVersion          string
	SourceDigest        string // SHA-256 of the app's sources, lower-case hex
	IssuedAt, ExpiresAt time.Time
	Nonce               string // UUID, lower-case
}

// NewRequest fills in what follows from the purpose: the recipe, whether the reference runs, and the longest life that is allowed.
func NewRequest(runName string, purpose Purpose, durationPermille int64, appVersion, sourceDigest, nonce string, issuedAt time.Time) (Request, error) {
	r := Request{
		RunName: runName, Recipe: Recipe, DurationPermille: durationPermille, ReferenceEnabled: purpose != PurposeCostOff, Purpose: purpose,
		AppVersion: appVersion, SourceDigest: sourceDigest, Nonce: nonce,
		IssuedAt: issuedAt.UTC(), ExpiresAt: issuedAt.UTC().Add(MaxRequestLife),
	}
	if durationPermille != wholeRecipe {
		r.Recipe = RecipeRehearsal
	}
	return r, r.Validate()
}

// Rehearsal tells a run that can never count.
func (r *Request) Rehearsal() bool {
	return r.Purpose == PurposeRehearsal || r.Recipe == RecipeRehearsal
}

var (
	runNamePattern = regexp.MustCompile(`^[0-9A-Za-z_][0-9A-Za-z._-]{0,63}$`)
	noncePattern   = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	plainPattern   = regexp.MustCompile(`^[ !#-\[\]-~]{1,32}$`)
	// The fraction has at most nine digits, so that a time is a whole number of nanoseconds.
	timePattern = regexp.MustCompile(`^2[01]\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$`)
)

// Validate says what the app would refuse about the request itself.
func (r *Request) Validate() error {
	fault := func(format string, args ...any) error { return fmt.Errorf("lab27 request: "+format, args...) }
	switch {
	case !runNamePattern.MatchString(r.RunName):
		return fault("runName %q: want 1 to 64 letters, digits, '.', '_' or '-', the first no '.' or '-'", r.RunName)
	case r.Recipe != Recipe && r.Recipe != RecipeRehearsal:
		return fault("recipe %q: want %s or %s", r.Recipe, Recipe, RecipeRehearsal)
	case !slices.Contains(purposes, r.Purpose):
		return fault("purpose %q: want one of %q", r.Purpose, purposes)
	case r.Purpose == PurposeFormal && r.Recipe != Recipe:
		return fault("a formal run takes the whole recipe %s, not %s", Recipe, r.Recipe)
	case !r.ReferenceEnabled && r.Purpose != PurposeCostOff:
		return fault("purpose %s needs referenceEnabled; only %s may lack it", r.Purpose, PurposeCostOff)
	case !plainPattern.MatchString(r.AppVersion):
		return fault("appVersion %q: want 1 to 32 printable ASCII characters without quotes and backslashes", r.AppVersion)
	case !isHex64(r.SourceDigest):
		return fault("sourceDigest %q: want a SHA-256 in lower-case hex", r.SourceDigest)
	case !noncePattern.MatchString(r.Nonce):
		return fault("nonce %q: want a lower-case UUID", r.Nonce)
	case r.DurationPermille < minPermille || r.DurationPermille > wholeRecipe:
		return fault("durationPermille %d: want %d to %d", r.DurationPermille, minPermille, wholeRecipe)
	case r.Recipe == Recipe && r.DurationPermille != wholeRecipe:
		return fault("durationPermille %d: only %s is scaled", r.DurationPermille, RecipeRehearsal)
	case r.IssuedAt.Year() < 2000 || r.IssuedAt.Year() > 2199 || r.ExpiresAt.Year() < 2000 || r.ExpiresAt.Year() > 2199:
		return fault("issuedAt %v, expiresAt %v: want years 2000 to 2199", r.IssuedAt, r.ExpiresAt)
	case !r.ExpiresAt.After(r.IssuedAt):
		return fault("expiresAt %v is not after issuedAt %v", r.ExpiresAt, r.IssuedAt)
	case r.ExpiresAt.Sub(r.IssuedAt) > MaxRequestLife:
		return fault("lives for %v, at most %v are allowed", r.ExpiresAt.Sub(r.IssuedAt), MaxRequestLife)
	}
	return nil
}

// FileName is its name in PhonePending.
func (r *Request) FileName() string { return r.Nonce + ".json" }

// AppendJSON appends the file's content; the request must be valid.
func (r *Request) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"schema":"`+RequestSchema+`","runName":"`+r.RunName+`","recipe":"`+r.Recipe+`"`...)
	if r.Recipe == RecipeRehearsal {
		dst = fmt.Appendf(dst, `,"durationPermille":%d`, r.DurationPermille)
	}
	dst = fmt.Appendf(dst, `,"referenceEnabled":%t,"purpose":"%s","appVersion":"%s","sourceDigest":"%s"`, r.ReferenceEnabled, r.Purpose, r.AppVersion, r.SourceDigest)
	return fmt.Appendf(dst, `,"issuedAt":"%s","expiresAt":"%s","nonce":"%s"}`+"\n", r.IssuedAt.UTC().Format(time.RFC3339Nano), r.ExpiresAt.UTC().Format(time.RFC3339Nano), r.Nonce)
}

// ParseRequest reads what the app would accept, and nothing else: printable ASCII without escapes.
func ParseRequest(data []byte) (Request, error) {
	var (
		r Request
		s jsonline.Scanner
	)
	if len(data) > MaxRequestBytes {
		return r, fmt.Errorf("lab27 request: %w: %d bytes, at most %d", Bounds, len(data), MaxRequestBytes)
	}
	if i := bytes.IndexFunc(data, func(c rune) bool { return c == '\\' || c > '~' }); i >= 0 {
		return r, fmt.Errorf("lab27 request: %w: byte %d: want printable ASCII without escapes", Schema, i)
	}
	scaled := bytes.Contains(data, []byte(`"durationPermille"`)) // a wrong guess is refused below
	want := requestMembers(&r, scaled)
	if err := document(&s, data, want...); err != nil {
		return r, fmt.Errorf("lab27 request: %w: %w", Schema, err)
	}
	return r, checkRead(&r, scaled)
}

// requestMembers are a request's members, also within a plan.
func requestMembers(r *Request, scaled bool) []member {
	r.DurationPermille = wholeRecipe
	m := []member{
		constant("schema", RequestSchema), text("runName", 64, &r.RunName), text("recipe", 32, &r.Recipe), boolean("referenceEnabled", &r.ReferenceEnabled),
		text("purpose", 16, (*string)(&r.Purpose)), text("appVersion", 32, &r.AppVersion), text("sourceDigest", 64, &r.SourceDigest),
		instant("issuedAt", &r.IssuedAt), instant("expiresAt", &r.ExpiresAt), text("nonce", 36, &r.Nonce),
	}
	if scaled {
		m = append(m, integer("durationPermille", minPermille, &r.DurationPermille))
	}
	return m
}

func checkRead(r *Request, scaled bool) error {
	if scaled != (r.Recipe == RecipeRehearsal) {
		return fmt.Errorf("lab27 request: durationPermille belongs to %s, and only there", RecipeRehearsal)
	}
	return r.Validate()
}

func instant(key string, to *time.Time) member {
	return member{key, func(s *jsonline.Scanner) bool {
		b, ok := s.Bytes()
		if !ok || !timePattern.Match(b) {
			return false
		}
		var t time.Time
		if t.UnmarshalText(b) != nil { // stricter than time.Parse
			return false
		}
		*to = t.UTC()
		return true
	}}
}

// same tells whether the app ran what was asked for.
func (r *Request) same(o *Request) bool {
	return r.RunName == o.RunName && r.Recipe == o.Recipe && r.DurationPermille == o.DurationPermille && r.ReferenceEnabled == o.ReferenceEnabled &&
		r.Purpose == o.Purpose && r.AppVersion == o.AppVersion && r.SourceDigest == o.SourceDigest && r.Nonce == o.Nonce &&
		r.IssuedAt.Equal(o.IssuedAt) && r.ExpiresAt.Equal(o.ExpiresAt)
}

// Reasons why a request must not be sent. The app refuses the same, but then the nonce or the waiting request is lost.
var (
	ErrPending     = errors.New("another request is pending on the phone")
	ErrNonceUsed   = errors.New("the nonce was used before")
	ErrRunNameUsed = errors.New("the run name was used before")
)

// OnPhone are the names in the app's directories of the same names.
type OnPhone struct {
	Pending, Consumed, Refused, Runs []string
}

// CheckUnused refuses a request that could not run once and alone.
func (r *Request) CheckUnused(on OnPhone) error {
	for _, name := range on.Pending {
		if !strings.HasPrefix(name, ".") {
			return fmt.Errorf("lab27 request %s: %w: %s; launch the app to have it run or refused", r.RunName, ErrPending, name)
		}
	}
	if slices.Contains(on.Consumed, r.FileName()) || slices.ContainsFunc(on.Refused, r.isRefusal) {
		return fmt.Errorf("lab27 request %s: %w: %s", r.RunName, ErrNonceUsed, r.Nonce)
	}
	if slices.Contains(on.Runs, r.RunName) {
		return fmt.Errorf("lab27 request %s: %w", r.RunName, ErrRunNameUsed)
	}
	return nil
}

func (r *Request) isRefusal(name string) bool { return strings.HasSuffix(name, "-"+r.FileName()) }

// RefusalNote finds, among the names in PhoneRefused, the note on this request; "" where there is none.
func (r *Request) RefusalNote(names []string) string {
	for _, name := range names {
		if rest, ok := strings.CutSuffix(name, ".reason"); ok && r.isRefusal(rest) {
			return name
		}
	}
	return ""
}

// Refusal is the app's note on a request that it refused.
type Refusal struct {
	File, Reason, Detail string
	AtUnixNs             int64
}

// ParseRefusal reads such a note.
func ParseRefusal(data []byte) (Refusal, error) {
	var (
		r Refusal
		s jsonline.Scanner
	)
	if len(data) > MaxRequestBytes {
		return r, fmt.Errorf("lab27 refusal: %w: %d bytes, at most %d", Bounds, len(data), MaxRequestBytes)
	}
	err := document(&s, data, constant("schema", "lab27.refusal/1"), text("file", 64, &r.File), text("reason", 64, &r.Reason),
		text("detail", 64, &r.Detail), integer("atUnixNs", 0, &r.AtUnixNs))
	if err != nil {
		return r, fmt.Errorf("lab27 refusal: %w: %w", Schema, err)
	}
	return r, nil
}
