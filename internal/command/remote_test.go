package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console"
	"github.com/pacer/pacer/internal/testservices"
	"github.com/pacer/pacer/internal/top"
)

// served starts the console of a desk and returns the flags for commands over it.
func served(t *testing.T, d *desk) (flags string) {
	t.Helper()
	// Below the ports that the system gives to others meanwhile: the console takes it some time later.
	var address string
	for address == "" {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_240+rand.IntN(8000)))
		if err == nil {
			address = l.Addr().String()
			_ = l.Close()
		}
	}
	const token = "open-sesame-open-sesame"
	var said bytes.Buffer
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() {
		ended <- Run(ctx, []string{"console", "--listen", address}, World{strings.NewReader(""), &said, &said, append(d.environ, "PACER_ADMIN_TOKEN="+token)})
	}()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != 0 || strings.Contains(said.String(), token) {
			t.Errorf("the console ends with %d and says %s", code, said.String())
		}
	})
	deadline := time.Now().Add(30 * time.Second)
	for console.AskReady(t.Context(), address) != nil {
		if time.Now().After(deadline) {
			t.Fatal("the console is not ready")
		}
		time.Sleep(5 * time.Millisecond)
	}
	d.file("token", token+"\n")
	return " --server http://" + address + " --token file:token"
}

// alike checks that a command line prints over the server what another one then prints over the database.
func (d *desk) alike(line, flags, show string) {
	d.t.Helper()
	there := same(d.run(line + flags))
	if here := same(d.run(show)); here != there {
		d.t.Errorf("%s prints over the server\n%s\nand then %s\n%s", line, there, show, here)
	}
}

// TestCommandsOverAServer: what a command prints over the API of a console is what it prints over the database.
func TestCommandsOverAServer(t *testing.T) {
	d := newDesk(t, testservices.FreshRedis(t).Addr)
	d.hooks()
	d.environ = append(d.environ, "PACER_SINKS_OUT_TYPE=log") // of two, none is the default
	d.run("quota set provider --window 300/1m,5000/1d:fixed:day@Europe/Moscow --mode shadow --rollout 50")
	d.run("campaign create slow --rate 600/m --quota provider --ramp start=60,add=30,every=1h --time-zone Europe/Moscow --job-ttl 36h --burst 3",
		"--expected-total", "100", "--active-hours", "mon-sun 00:00-24:00", "--note", "ask Anna")
	d.shows("campaign show slow", "ask Anna")
	d.run("campaign create held --rate 0 --starts-at 2030-01-01T00:00:00Z")
	d.run("destination create shop-7 --url https://shop-7.example/hook?token=hunter22 --secret file:new,env:DESTINATION_OLD --max-in-flight 8",
		"--header", "x-tenant=blue")
	d.run("destination create shop-8 --url https://shop-8.example/hook")
	flags := served(t, d)
	for _, line := range []string{
		"explain held", "explain held --json", "campaign list", "campaign show slow", "campaign show slow --json", "campaign show held", "quota list",
		"quota show provider", "destination list", "destination show shop-7", "sink list", "sink list --json",
	} {
		d.alike(line, flags, line)
	}
	for _, line := range []string{
		"campaign create fast --rate 500 --quota provider --ramp start=10,factor=1.5,every=1h --job-ttl 7d",
		"campaign set fast --rate 150/m --ramp none --job-ttl 0s --ends-at 2030-01-01T00:00:00Z --burst 7 --overflow block",
		"campaign pause fast --until 2030-01-01T03:00:00+03:00", "campaign pause fast", "campaign resume fast", "campaign cancel fast --yes",
	} {
		d.alike(line, flags, "campaign show fast")
	}
	manyOver(t, d, flags)
	d.alike("destination disable shop-7 --reason gone", flags, "destination show shop-7")
	d.alike("destination list", flags, "destination list")
	d.alike("destination set shop-7 --url https://shop-7.example/new --secret file:a --sink hooks", flags, "destination show shop-7")
	d.alike("destination enable shop-7", flags, "destination show shop-7")
	d.alike("destination create shop-9 --url https://shop-9.example/hook --header authorization=file:shop-9", flags, "destination show shop-9")
	for line, why := range warned {
		d.warns("destination create "+line+flags, ": "+why+"\n")
	}
	d.prints("destination delete shop-9 --yes"+flags, "deleted destination shop-9\n")
	d.prints("sink open out"+flags, "the gate of sink out was open\n")
	d.prints("sink open hooks --destination shop-7"+flags, "destination shop-7 of sink hooks was open\n")
	watchOver(t, d, flags)
	changeQuotasOver(t, d, flags)
	for line, says := range map[string]string{
		"campaign show nobody": "campaign nobody does not exist", "quota show nothing": "quota nothing does not exist",
		"campaign pause fast": "only active and paused campaigns",
		"sink open nowhere":   "no sink nowhere", "destination show nowhere": "does not exist",
	} {
		d.refuses(1, line+flags, says)
	}
	for line, says := range map[string]string{
		"campaign create slow --rate 5":                      "exists already",
		"destination create shop-7 --url https://shop-7.ex/": "exists already",
		"campaign set slow --quota nothing":                  "quota nothing does not exist",
		"campaign pause slow --until tomorrow":               "until: \"tomorrow\" is neither a time",
		"campaign pause slow --until 2020-01-01T00:00:00Z":   "is not ahead",
		"destination set shop-7 --url ftp://shop-7.example/": "url: must begin with https:// or http://",
	} {
		d.refuses(2, line+flags, says)
	}
	d.shows("campaign delete fast --yes"+flags, "deleted campaign fast, which had delivered 0 jobs")
	d.refuses(1, "campaign show fast", "does not exist")
	viewer, _, _ := strings.Cut(flags, " --token")
	d.refuses(1, "campaign pause slow"+viewer, "this takes a token of role operator; give it with --token file:PATH")
	d.refuses(1, "destination set shop-7 --max-in-flight 3"+viewer, "this takes a token of role admin")
	d.file("wrong", "guess")
	d.refuses(1, "campaign list"+viewer+" --token file:wrong", "this token is not known")
}

// TestAnIDOfDotsIsNoPath: a command is about the id that it names, also where a path would lead elsewhere: .. as a key is no quota.
func TestAnIDOfDotsIsNoPath(t *testing.T) {
	d := newDesk(t, testservices.FreshRedis(t).Addr)
	d.run("quota set cap --per recipient --window 5/1m")
	for _, over := range []string{"", served(t, d)} {
		for _, id := range []string{".", ".."} {
			d.fields(d.run("quota set cap --key "+id+over, "--window", "7/1m"), "window 7/1m 0 of 7 used")
			d.fields(d.run("quota set cap --key "+id+over, "--window", ""), "window 5/1m 0 of 5 used")
			d.fields(d.run("key show cap "+id+over), "recipient "+id)
			d.fields(d.run("quota show cap"+over), "windows 5/1m")
			d.fields(d.run("campaign create "+id+" --rate 5"+over), "id "+id)
			d.run("campaign cancel " + id + " --yes" + over)
			d.run("campaign delete " + id + " --yes" + over)
			d.refuses(1, "quota show "+id+over, "quota "+id+" does not exist")
			d.refuses(1, "destination show "+id+over, "destination "+id+" does not exist")
		}
	}
}

// manyOver pauses and resumes campaigns that flags select, over the server and over the database. A console's answers may be a second
// old.
func manyOver(t *testing.T, d *desk, flags string) {
	t.Helper()
	for line, says := range map[string]string{
		"campaign pause slow --all": "give an id, or --all", "campaign pause --all --until yesterday": "--until: ",
		"campaign set --all": "give --rate or --percent", "campaign set --all --rate 5 --percent 5": "one of them",
		"campaign set --all --burst 3": "only --rate or --percent", "campaign set --all --percent -5": "above 0",
		"campaign set slow --percent 50": "--percent is of many", "campaign pause slow --reason a\x01b": "give one line",
	} {
		d.refuses(2, line, says)
	}
	for _, over := range []string{flags, ""} {
		d.refuses(1, "campaign pause --of-quota nosuch --yes"+over, "quota nosuch does not exist; create it with")
		d.refuses(1, "campaign set --of-sink nowhere --rate 5"+over, "there is no sink nowhere: it is not configured, and nothing names it")
		d.refuses(2, "campaign pause --match l"+over, "give --yes to pause 2 campaigns") // held and slow
		for _, step := range [][2]string{
			{"campaign pause --of-quota provider --match slow --until 2h --yes", "paused 1 of 1 campaigns that match and are active"},
			{"campaign resume --match slow --yes", "resumed 1 of 1 campaigns that match and are paused"}, {"campaign pause --match nobody", "paused 0 of 0"},
			{"campaign set --match slow --percent 50 --yes --reason slower", "set the rates of 1 of 1 campaigns that match;"},
			{"campaign set --match slow --of-quota provider --rate 600/m --yes", "set the rates of 1 of 1"},
		} {
			deadline := time.Now().Add(20 * time.Second)
			for said := d.run(step[0] + over); !strings.HasPrefix(said, step[1]); said = d.run(step[0] + over) {
				if time.Now().After(deadline) {
					t.Fatalf("%s%s says %s", step[0], over, said)
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
	}
	d.run("campaign set slow --burst 4 --reason", "by command")
	d.run("campaign set slow --burst 3"+flags+" --reason", "by server")
	admin := try(catalog.NewAdmin(d.dsn))(t)
	defer admin.Close()
	changes, err := admin.Changes(t.Context(), catalog.ChangesOf{Campaign: "slow", Limit: 4})
	if err != nil || len(changes) != 4 || changes[0].Reason != "by server" || changes[1].Reason != "by command" || changes[3].Reason != "slower" {
		t.Errorf("the changes are %+v, %v", changes, err)
	}
}

// watchOver watches an installation without daemons, over the server and in its own process.
func watchOver(t *testing.T, d *desk, flags string) {
	t.Helper()
	for _, over := range []string{flags, ""} {
		frame := read[top.Frame](d, "top --interval 100ms --sort name --campaign slow"+over)
		if frame.Fleet.Running != 0 || !frame.Ready || len(frame.Campaigns) != 1 || frame.Campaigns[0].Campaign != "slow" || frame.Campaigns[0].SendRate == nil ||
			len(frame.Quotas) != 2 || frame.Quotas[0].Limit != 300 || *frame.Quotas[0].Remaining != 300 {
			t.Errorf("%+v", frame)
		}
		d.shows("top --once --interval 100ms"+over, "pacer top  ", "daemons ready 0 of 0", "late by capacity 0", "\nslow ", "\nprovider ")
	}
	d.refuses(2, "top --token file:absent", "--token goes with --server")
}

// changeQuotasOver changes quotas over the server, and compares what that prints with what the database has then.
func changeQuotasOver(t *testing.T, d *desk, flags string) {
	t.Helper()
	for _, c := range []struct{ line, id string }{
		{"quota set provider --window 300/1m,9000/1d --mode strict --rollout 100", "provider"}, {"quota set provider --window 300/1m,20/10s:log", "provider"},
		{"quota set fresh --window 5/1h --spend even --with provider", "fresh"},
	} {
		there := strings.Split(same(d.run(c.line+flags)), "\n")
		here := strings.Split(same(d.run("quota show "+c.id)), "\n")
		if len(there) < 9 || !slices.Equal(there, here[:min(len(there), len(here))]) {
			t.Errorf("%s prints over the server\n%s\nand then it is\n%s", c.line, there, here)
		}
	}
	d.prints("quota adjust provider 10s --used 7 --reason credit"+flags, "window 10s of quota provider has counted 7 of 20 units, and 0 before\n")
	d.shows("quota usage provider --last 3h --step 30m"+flags, "FROM ", "Z  7 ")
	d.prints("quota delete fresh --yes"+flags, "deleted quota fresh, which limited 0 campaigns\n")
	d.refuses(2, "quota delete provider --yes"+flags, "limits 2 campaigns")
	d.refuses(1, "quota adjust provider 9h --used 7 --reason credit"+flags, "has no window of 9h")
	d.refuses(2, "quota adjust provider 10s --used 0 --reason credit"+flags, "give lower")
}

// same leaves out of what is printed when it was looked at: a window that is full is so again at that moment.
func same(printed string) string {
	var document map[string]any
	if json.Unmarshal([]byte(printed), &document) == nil {
		delete(document, "updated_at")
		return fmt.Sprint(document)
	}
	printed = regexp.MustCompile(`(?m) now +\S+Z$`).ReplaceAllString(printed, " now")
	var kept []string
	for line := range strings.Lines(printed) {
		line = strings.Join(strings.Fields(line), " ")
		if !strings.HasPrefix(line, "updated at") && !strings.HasPrefix(line, "held since") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

// answers is a server that answers {} after a time.
type answers time.Duration

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(time.Duration(a)):
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}"))}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// TestAChangeOfManyCampaignsIsAwaited: it takes minutes, and nothing else does.
func TestAChangeOfManyCampaignsIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const host = "pacer.example.com"
		r := &client{base: &url.URL{Scheme: "https", Host: host}, address: host, http: &http.Client{Transport: answers(2 * time.Minute)}}
		for path, ok := range map[string]bool{"/bulk-changes": true, "/campaigns": false} {
			if err := r.call(t.Context(), http.MethodPost, path, nil, struct{}{}, &struct{}{}); (err == nil) != ok {
				t.Errorf("%s: %v", path, err)
			}
		}
	})
}

// TestServersThatAreNoConsoles: a token goes nowhere where others could read it, and what is no console is named.
func TestServersThatAreNoConsoles(t *testing.T) {
	d := &desk{t: t}
	t.Chdir(t.TempDir())
	d.file("token", "secret-secret")
	asked := make(chan string, 10)
	var answer http.HandlerFunc
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Host + " " + r.Header.Get("Authorization")
		answer(w, r)
	}))
	defer h.Close()
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		says   string
	}{
		"a page":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, "does not answer as a console does"},
		"no page": {http.NotFound, "404 Not Found, which is not what a console says"},
		"another place": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.2/", http.StatusFound)
		}, "302 Found"},
	} {
		answer = tt.answer
		d.refuses(1, "campaign list --token file:token --server "+h.URL, tt.says)
		if got := <-asked; !strings.HasSuffix(got, " Bearer secret-secret") || len(asked) > 0 {
			t.Errorf("%s: asked %s, and %d more", name, got, len(asked))
		}
	}
	d.refuses(1, "quota show provider --server http://127.0.0.1:1", "--server 127.0.0.1:1: no answer: connect: connection refused")
	for line, says := range map[string]string{
		"campaign list --server http://pacer.example.com --token file:token": "the token would be readable on the way",
		"campaign list --server pacer.example.com":                           "--server must be the address of a console",
		"campaign list --server ftp://pacer.example.com":                     "--server must be the address of a console",
		"campaign list --server https://me:word@pacer.example.com":           "--server must be the address of a console",
		"campaign list --server " + h.URL + " --token secret-secret":         "--token must be file:PATH",
		"campaign list --server " + h.URL + " --token file:absent":           "--token: open absent",
		"campaign list --token file:token":                                   "--token goes with --server",
		"sink test hooks --server " + h.URL:                                  "unknown flag: --server",
		"dead show 0/1 --payload --token file:token":                         "--token goes with --server",
	} {
		d.refuses(2, line, says)
	}
	if len(asked) > 0 {
		t.Errorf("asked %s", <-asked)
	}
}
