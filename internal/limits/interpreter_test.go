package limits

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	glua "github.com/yuin/gopher-lua"

	"github.com/pacer/pacer/internal/shards"
)

// interpreter runs scripts in this process, in place of a Redis, and counts the instructions of each run. The counts do not depend on the
// machine. It knows the commands that takes, refunds, charges and peeks use, and no time to live.
type interpreter struct {
	scripts map[string]*glua.FunctionProto
	values  map[string]string
	most    int // instructions of the longest run
	all     int
	runs    int
}

// newInterpreter returns a client that is answered by an interpreter.
func newInterpreter(t testing.TB) (*interpreter, redis.UniversalClient) {
	t.Helper()
	in := &interpreter{scripts: map[string]*glua.FunctionProto{}, values: map[string]string{}}
	client := redis.NewUniversalClient(shards.ClientOptions("127.0.0.1:1"))
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(in)
	return in, client
}

// reset begins to count anew.
func (in *interpreter) reset() { in.most, in.all, in.runs = 0, 0, 0 }

func (in *interpreter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (in *interpreter) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { return fmt.Errorf("unexpected command %v", cmd) }
}

func (in *interpreter) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			reply, err := in.eval(cmd.Args())
			cmd.(*redis.Cmd).SetVal(reply)
			cmd.SetErr(err)
		}
		return nil
	}
}

// refused is an error that a server answers.
type refused string

func (e refused) Error() string { return string(e) }
func (refused) RedisError()     {}

// eval does EVAL or EVALSHA.
func (in *interpreter) eval(args []any) (any, error) {
	sha := args[1].(string)
	if args[0] == "eval" {
		sum := sha1.Sum([]byte(sha))
		source := sha
		sha = hex.EncodeToString(sum[:])
		in.scripts[sha] = in.compile(source)
	}
	proto := in.scripts[sha]
	if proto == nil {
		return nil, refused("NOSCRIPT No matching script")
	}
	keys := args[2].(int)
	return in.run(proto, args[3:3+keys], args[3+keys:])
}

func (in *interpreter) compile(source string) *glua.FunctionProto {
	state := glua.NewState()
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

func (in *interpreter) run(proto *glua.FunctionProto, keys, args []any) (any, error) {
	state := glua.NewState()
	defer state.Close()
	count := &steps{Context: context.Background()}
	state.SetContext(count)
	for name, list := range map[string][]any{"KEYS": keys, "ARGV": args} {
		table := state.NewTable()
		for _, v := range list {
			table.Append(glua.LString(text(v)))
		}
		state.SetGlobal(name, table)
	}
	state.SetGlobal("redis", state.SetFuncs(state.NewTable(), map[string]glua.LGFunction{"call": in.call, "error_reply": errorReply}))
	state.SetGlobal("struct", state.SetFuncs(state.NewTable(), map[string]glua.LGFunction{"pack": pack, "unpack": unpack}))
	if err := state.CallByParam(glua.P{Fn: state.NewFunctionFromProto(proto), NRet: 1, Protect: true}); err != nil {
		return nil, refused(err.Error())
	}
	in.most, in.all, in.runs = max(in.most, count.n), in.all+count.n, in.runs+1
	switch v := state.Get(-1).(type) {
	case glua.LString:
		return string(v), nil
	case *glua.LTable:
		return nil, refused(v.RawGetString("err").String())
	default:
		return nil, refused("unexpected reply " + v.String())
	}
}

func text(v any) string {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(v)
}

func errorReply(state *glua.LState) int {
	reply := state.NewTable()
	reply.RawSetString("err", state.Get(1))
	state.Push(reply)
	return 1
}

// call is redis.call.
func (in *interpreter) call(state *glua.LState) int {
	get := func(key string) glua.LValue {
		if v, ok := in.values[key]; ok {
			return glua.LString(v)
		}
		return glua.LFalse
	}
	switch command := state.CheckString(1); command {
	case "GET":
		state.Push(get(state.CheckString(2)))
	case "MGET":
		list := state.NewTable()
		for i := 2; i <= state.GetTop(); i++ {
			list.RawSetInt(i-1, get(state.CheckString(i)))
		}
		state.Push(list)
	case "SET":
		in.values[state.CheckString(2)] = state.CheckString(3)
		state.Push(glua.LString("OK"))
	default:
		state.RaiseError("unexpected command %s", command)
	}
	return 1
}

var fields = regexp.MustCompile(`B|I(\d+)|c0`)

// pack and unpack are those of the struct library, as far as scripts use them: little-endian unsigned integers, and strings of
// the length that goes before them.
func pack(state *glua.LState) int {
	var out []byte
	for i, f := range fields.FindAllStringSubmatch(state.CheckString(1), -1) {
		switch v := state.Get(i + 2); f[0] {
		case "c0":
			out = append(out, v.String()...)
		default:
			out = put(out, size(f), int64(v.(glua.LNumber)))
		}
	}
	state.Push(glua.LString(out))
	return 1
}

func unpack(state *glua.LState) int {
	s, pos, last := state.CheckString(2), state.OptInt(3, 1)-1, int64(0)
	n := 1
	for _, f := range fields.FindAllStringSubmatch(state.CheckString(1), -1) {
		if f[0] == "c0" {
			state.Pop(1) // the length
			state.Push(glua.LString(s[pos : pos+int(last)]))
			pos += int(last)
			continue
		}
		in := reader{rest: s[pos : pos+size(f)]}
		last = in.next(size(f))
		state.Push(glua.LNumber(last))
		pos, n = pos+size(f), n+1
	}
	state.Push(glua.LNumber(pos + 1))
	return n
}

func size(field []string) int {
	if field[0] == "B" {
		return 1
	}
	n, _ := strconv.Atoi(field[1]) // digits, by the expression
	return n
}
