// Package luaredis runs scripts in this process, in place of a Redis: in virtual time, or to count what they do.
package luaredis

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	lua "github.com/yuin/gopher-lua"
)

// Server answers the scripts of its clients. It knows the commands and libraries that the scripts of this module use on strings and hashes, and no
// time to live. Its fields may be changed between scripts, with Do where others use it.
type Server struct {
	// Values has the strings by their keys, and the fields of hashes by key and field, with a space between them. nil: reading fails.
	Values map[string]string
	RunID  string
	Off    time.Duration // how far its clock is ahead
	Lasts  time.Duration // of a round trip
	Lose   int           // how many replies get lost: the script runs, the client times out
	Packed int           // numbers in the value that was packed last

	// Counts has instructions counted, which takes time: those of the longest run, and of all runs. They do not depend on the machine.
	Counts          bool
	Most, All, Runs int

	mu      sync.Mutex // guards all fields
	scripts map[string]*lua.FunctionProto
	packed  [][]any // by number, which stands for the text
}

// New returns a server and a client of it.
func New() (*Server, *redis.Client) {
	s := &Server{Values: map[string]string{}, RunID: "aaaa", scripts: map[string]*lua.FunctionProto{}}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	client.AddHook(s)
	return s, client
}

// Do changes the server between two scripts.
func (s *Server) Do(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// Reset begins to count instructions anew.
func (s *Server) Reset() { s.Most, s.All, s.Runs = 0, 0, 0 }

// DialHook implements redis.Hook.
func (s *Server) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (s *Server) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { return fmt.Errorf("unexpected command %v", cmd) }
}

// ProcessPipelineHook implements redis.Hook.
func (s *Server) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		var lasts time.Duration
		s.Do(func() { lasts = s.Lasts })
		time.Sleep(lasts / 2)
		defer time.Sleep(lasts / 2)
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, cmd := range cmds {
			reply, err := s.eval(cmd.Args())
			if s.Lose > 0 && !redis.HasErrorPrefix(err, "NOSCRIPT") {
				s.Lose--
				reply, err = nil, context.DeadlineExceeded
			}
			if cmd.SetErr(err); err == nil {
				cmd.(*redis.Cmd).SetVal(reply)
			}
		}
		return nil
	}
}

// refused is an error that a server answers.
type refused string

func (e refused) Error() string { return string(e) }
func (refused) RedisError()     {}

// eval does EVAL or EVALSHA.
func (s *Server) eval(args []any) (any, error) {
	sha := args[1].(string)
	if args[0] == "eval" {
		source := sha
		if sha = redis.NewScript(source).Hash(); s.scripts[sha] == nil {
			s.scripts[sha] = compile(source)
		}
	}
	proto := s.scripts[sha]
	if proto == nil {
		return nil, refused("NOSCRIPT No matching script")
	}
	keys := args[2].(int)
	return s.run(proto, args[3:3+keys], args[3+keys:])
}

func compile(source string) *lua.FunctionProto {
	state := lua.NewState()
	defer state.Close()
	f, err := state.LoadString(source)
	if err != nil {
		panic(err)
	}
	return f.Proto
}

// steps is a context that is asked once for each instruction whether it is done.
type steps struct {
	context.Context
	n int
}

func (s *steps) Done() <-chan struct{} {
	s.n++
	return nil
}

func (s *Server) run(proto *lua.FunctionProto, keys, args []any) (any, error) {
	state := lua.NewState()
	defer state.Close()
	count := &steps{Context: context.Background()}
	if s.Counts {
		state.SetContext(count)
	}
	for name, list := range map[string][]any{"KEYS": keys, "ARGV": args} {
		table := state.NewTable()
		for _, v := range list {
			table.Append(lua.LString(text(v)))
		}
		state.SetGlobal(name, table)
	}
	for name, functions := range map[string]map[string]lua.LGFunction{
		"redis":    {"call": s.call, "error_reply": errorReply},
		"struct":   {"pack": pack, "unpack": unpack},
		"cmsgpack": {"pack": s.packAll, "unpack": s.unpackAll, "unpack_one": s.unpackOne},
	} {
		state.SetGlobal(name, state.SetFuncs(state.NewTable(), functions))
	}
	if err := state.CallByParam(lua.P{Fn: state.NewFunctionFromProto(proto), NRet: 1, Protect: true}); err != nil {
		return nil, refused(err.Error())
	}
	s.Most, s.All, s.Runs = max(s.Most, count.n), s.All+count.n, s.Runs+1
	return reply(state.Get(-1))
}

func text(v any) string {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(v)
}

// reply is what a client gets of what a script returns.
func reply(v lua.LValue) (any, error) {
	switch v := v.(type) {
	case lua.LString:
		return string(v), nil
	case lua.LNumber:
		return int64(v), nil
	case *lua.LTable:
		if err := v.RawGetString("err"); err != lua.LNil {
			return nil, refused(err.String())
		}
		list := make([]any, v.Len())
		for i := range list {
			var err error
			if list[i], err = reply(v.RawGetInt(i + 1)); err != nil {
				return nil, err
			}
		}
		return list, nil
	default:
		return nil, refused("unexpected reply " + v.String())
	}
}

func errorReply(state *lua.LState) int {
	table := state.NewTable()
	table.RawSetString("err", state.Get(1))
	state.Push(table)
	return 1
}

// list makes a table of texts.
func list(state *lua.LState, texts ...string) *lua.LTable {
	table := state.NewTable()
	for _, t := range texts {
		table.Append(lua.LString(t))
	}
	return table
}

// call is redis.call.
func (s *Server) call(state *lua.LState) int {
	get := func(name string) lua.LValue {
		if s.Values == nil {
			state.RaiseError("down")
		}
		if v, ok := s.Values[name]; ok {
			return lua.LString(v)
		}
		return lua.LFalse
	}
	key, answer := state.OptString(2, ""), lua.LValue(lua.LTrue)
	switch command := state.CheckString(1); command {
	case "TIME":
		now := time.Now().Add(s.Off)
		answer = list(state, fmt.Sprint(now.Unix()), fmt.Sprint(now.Nanosecond()/1000))
	case "INFO":
		answer = lua.LString("run_id:" + s.RunID)
	case "GET":
		answer = get(key)
	case "MGET":
		all := state.NewTable()
		for i := 2; i <= state.GetTop(); i++ {
			all.RawSetInt(i-1, get(state.CheckString(i)))
		}
		answer = all
	case "SET":
		s.Values[key] = state.CheckString(3)
	case "HGET":
		answer = get(key + " " + state.CheckString(3))
	case "HGETALL":
		all := state.NewTable()
		for name, v := range s.Values {
			if field, ok := strings.CutPrefix(name, key+" "); ok {
				all.Append(lua.LString(field))
				all.Append(lua.LString(v))
			}
		}
		answer = all
	case "HSET":
		s.Values[key+" "+state.CheckString(3)] = state.CheckString(4)
	case "HDEL":
		delete(s.Values, key+" "+state.CheckString(3))
	case "PTTL":
		answer = lua.LNumber(-1)
	case "PEXPIRE":
	default:
		state.RaiseError("unexpected command %s", command)
	}
	state.Push(answer)
	return 1
}
