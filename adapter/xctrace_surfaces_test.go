package adapter

import (
	"strings"
	"testing"
)

// What the file holds was read off it by hand: 12 rows of one display, half of whose durations refer to an earlier row's.
func TestDisplayedSurfacesOfARealRecording(t *testing.T) {
	intervals, err := ReadXctraceSurfaces(dataFile(t, "xctrace/displayed-surfaces-interval.xml"))
	if err != nil {
		t.Fatal(err)
	}
	durations := []int64{16666708, 16666625, 16666667, 16666667, 16666666, 16666667, 16666625, 16666750, 16666625, 16666667, 16666625, 16666666}
	if len(intervals) != len(durations) || intervals[0].StartNs != 481099833 || intervals[1].StartNs != 497766541 {
		t.Fatalf("%+v", intervals)
	}
	for i, d := range durations {
		if intervals[i].DurationNs != d || intervals[i].Display != "Display 1" {
			t.Errorf("row %d: %+v, want %d", i+1, intervals[i], d)
		}
	}
}

func TestDisplayedSurfacesRefuseWhatIsNoTime(t *testing.T) {
	const table = `<trace-query-result><node><schema name="displayed-surfaces-interval"><col><mnemonic>start</mnemonic></col><col><mnemonic>duration</mnemonic></col></schema>` +
		`<row><start-time>1</start-time><duration>DURATION</duration></row></node></trace-query-result>`
	for duration, fine := range map[string]bool{"16666708": true, "": false, "-1": false, "1.5": false, "9223372036854775807": false} {
		_, err := ReadXctraceSurfaces(strings.NewReader(strings.Replace(table, "DURATION", duration, 1)))
		if (err == nil) != fine {
			t.Errorf("%q: %v", duration, err)
		}
	}
	if _, err := ReadXctraceSurfaces(strings.NewReader("<a></a>")); err == nil || !strings.Contains(err.Error(), "displayed-surfaces-interval") {
		t.Errorf("another export: %v", err)
	}
}
