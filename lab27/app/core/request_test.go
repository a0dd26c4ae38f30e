//go:build cgo

package core_test

import (
	"strings"
	"testing"
	"time"

	"github.com/framebridge/framebridge/lab27"
	"github.com/framebridge/framebridge/lab27/app/core"
)

const goodRequest = `{"schema":"lab27.request/1","runName":"run-1","recipe":"p95-140.v1","referenceEnabled":true,"purpose":"formal","appVersion":"1.0",` +
	`"sourceDigest":"` + digest + `","issuedAt":"2025-11-03T09:30:00Z","expiresAt":"2025-11-03T09:40:00Z","nonce":"` + nonce + `"}`

func TestAppReadsRequestsStrictly(t *testing.T) {
	for _, c := range []struct{ change, to, fault string }{
		{"", "", ""},
		{"09:40:00Z", "09:40:00.000000001Z", "expiresAt is more than ten minutes after issuedAt"}, // ten minutes are allowed, a nanosecond more is not
		{"09:40:00Z", "09:30:00Z", "expiresAt is not after issuedAt"},
		{"2025-11-03T09:40:00Z", "2025-11-03T11:40:00+02:00", ""},
		{"2025-11-03T09:40:00Z", "2025-11-03T09:40:00", "expiresAt is not an RFC 3339 time"},
		{"2025-11-03T09:40:00Z", "2025-11-31T09:40:00Z", "expiresAt is not an RFC 3339 time"},
		{"2025-11-03T09:30:00Z", "2025-11-03T09:30:60Z", "issuedAt is not an RFC 3339 time"},
		{`"purpose":"formal"`, `"purpose":"formal","purpose":"formal"`, "a key twice"},
		{`"purpose":"formal"`, `"purpose":"fun"`, "unknown purpose"},
		{`"purpose":"formal",`, ``, "a key is missing"},
		{`"purpose":"formal"`, `"porpoise":"formal"`, "a key that a request does not have"},
		{`"runName":"run-1"`, `"runName":"../run"`, "runName is not a name of letters, digits, dots, underscores and hyphens"},
		{`"runName":"run-1"`, `"runName":"run\u002d1"`, "a value of the wrong type, too long, or out of range"},
		{`"runName":"run-1"`, `"runName":"` + strings.Repeat("r", 64) + `"`, ""},
		{`"runName":"run-1"`, `"runName":"` + strings.Repeat("r", 65) + `"`, "a value of the wrong type, too long, or out of range"},
		{`"referenceEnabled":true`, `"referenceEnabled":false`, "only cost-off may run without the reference"},
		{`"referenceEnabled":true`, `"referenceEnabled":1`, "a value of the wrong type, too long, or out of range"},
		{`true,"purpose":"formal"`, `false,"purpose":"cost-off"`, ""},
		{`"recipe":"p95-140.v1"`, `"recipe":"p95-140.v2"`, "unknown recipe"},
		{`"recipe":"p95-140.v1"`, `"recipe":"p95-140.v1.rehearsal"`, "a formal run takes the whole recipe"},
		{`"nonce":"6b`, `"nonce":"6B`, "nonce is not a lower-case UUID"},
		{`"sourceDigest":"0`, `"sourceDigest":"g`, "sourceDigest is not a SHA-256 in lower-case hex"},
		{`{"schema"`, `["schema"`, "not a JSON object"},
		{`lab27.request/1`, `lab27.request/2`, "schema is not lab27.request/1"},
		{`"}`, `"} x`, "bytes after the object"},
		{`"}`, `"`, "want a comma or the end of the object"},
	} {
		text := strings.Replace(goodRequest, c.change, c.to, 1)
		if _, _, got := core.ReadRequest([]byte(text)); got != c.fault {
			t.Errorf("%s to %s: %q, want %q", c.change, c.to, got, c.fault)
		}
		if _, err := lab27.ParseRequest([]byte(text)); (err == nil) != (c.fault == "") {
			t.Errorf("%s to %s: the host says %v", c.change, c.to, err)
		}
	}
}

func TestAppTakesTheScaleOfARehearsal(t *testing.T) {
	for scale, fine := range map[string]bool{"10": true, "100": true, "1000": true, "9": false, "1001": false, "0100": false, "-100": false, "1e2": false, "100.0": false, "": false} {
		text := strings.Replace(goodRequest, `"recipe":"p95-140.v1"`, `"recipe":"p95-140.v1.rehearsal","durationPermille":`+scale, 1)
		text = strings.Replace(text, "formal", "rehearsal", 1)
		if _, _, got := core.ReadRequest([]byte(text)); (got == "") != fine {
			t.Errorf("%s: %q", scale, got)
		}
	}
}

func TestAppKnowsTheCalendar(t *testing.T) {
	for day := time.Date(2000, 1, 1, 23, 55, 0, 0, time.UTC); day.Year() < 2200; day = day.AddDate(0, 0, 1) {
		text := strings.NewReplacer("2025-11-03T09:30:00Z", day.Format(time.RFC3339), "2025-11-03T09:40:00Z", day.Add(time.Minute).Format(time.RFC3339)).Replace(goodRequest)
		if issued, expires, fault := core.ReadRequest([]byte(text)); fault != "" || issued != day.UnixNano() || expires != issued+60_000_000_000 {
			t.Fatalf("%v: %d, %d, %q", day, issued, expires, fault)
		}
	}
}

// FuzzAppAndHostAgreeOnRequests: what one of them accepts the other does too.
func FuzzAppAndHostAgreeOnRequests(f *testing.F) {
	f.Add([]byte(goodRequest))
	f.Add([]byte(strings.Replace(strings.Replace(goodRequest, "v1", `v1.rehearsal","durationPermille":250,"a":"`, 1), "formal", "study", 1)))
	f.Add([]byte(strings.Replace(goodRequest, "09:30:00Z", "09:30:00.5-00:00", 1)))
	f.Add([]byte(strings.Replace(goodRequest, `"formal"`, " \t\n\"formal\"\r", 1)))
	f.Add([]byte(strings.ReplaceAll(goodRequest, "2025-11-03", "2024-02-29")))
	f.Add([]byte(strings.ReplaceAll(goodRequest, "2025-11-03", "2100-02-29")))
	f.Fuzz(func(t *testing.T, text []byte) {
		issued, expires, fault := core.ReadRequest(text)
		r, err := lab27.ParseRequest(text)
		if (fault == "") != (err == nil) || err == nil && (r.IssuedAt.UnixNano() != issued || r.ExpiresAt.UnixNano() != expires) {
			t.Fatalf("the app says %d, %d, %q, the host %v, %v, %v:\n%q", issued, expires, fault, r.IssuedAt, r.ExpiresAt, err, text)
		}
	})
}
