package shards

import (
	"strings"
	"testing"
)

func TestConnectSaysWhatIsWrong(t *testing.T) {
	for _, tc := range []struct {
		name  string
		o     Options
		count int
		want  string // "": valid
	}{
		{"single", Options{Addrs: []string{"a:1"}}, 1, ""},
		{"sentinel", Options{Mode: ModeSentinel, MasterName: "m", Addrs: []string{"a:1", "b:1"}}, 1, ""},
		{"cluster", Options{Mode: ModeCluster, Addrs: []string{"a:1"}}, 16, ""},
		{"ring", Options{Mode: ModeRing, Addrs: []string{"a:1", "c:1", "[::1]:1"}}, 3, ""},
		{"ring of more shards", Options{Mode: ModeRing, Addrs: []string{"a:1", "c:1"}, Shards: 5}, 5, ""},
		{"mode", Options{Mode: "mesh", Addrs: []string{"a:1"}}, 0, "mode: "},
		{"none", Options{}, 0, "addrs: at least one"},
		{"several", Options{Addrs: []string{"a:1", "b:1"}}, 0, "mode: required with several addresses"},
		{"no name", Options{Mode: ModeSentinel, Addrs: []string{"a:1"}}, 0, "master_name: "},
		{"database", Options{Mode: ModeCluster, Addrs: []string{"a:1"}, DB: 1}, 0, "db: "},
		{"port", Options{Addrs: []string{"a"}}, 0, `addrs: "a"`},
		{"password", Options{Addrs: []string{"redis://:secret@a:1"}}, 0, "addrs: write host:port without"},
		{"user", Options{Addrs: []string{"secret@a:1"}}, 0, "addrs: write host:port without"},
		{"user without a password", Options{Addrs: []string{"a:1"}, Username: "pacer"}, 0, "password: required with redis.username"},
		{"twice", Options{Mode: ModeRing, Addrs: []string{"a:1", "b:1", "a:1"}}, 0, `addrs: a:1 is listed twice`},
		{"too many", Options{Addrs: []string{"a:1"}, Shards: 5000}, 0, "shards: 5000 is out of range"},
		{"too few", Options{Mode: ModeRing, Addrs: []string{"a:1", "b:1"}, Shards: 1}, 0, "shards: 1 leaves some of the 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set, err := Connect(tc.o)
			if tc.want != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
					t.Fatalf("%v, want %q", err, tc.want)
				}
				if strings.Contains(err.Error(), "secret") {
					t.Errorf("it tells a secret: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if set.Count() != tc.count {
				t.Errorf("%d shards, want %d", set.Count(), tc.count)
			}
			if err := set.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
