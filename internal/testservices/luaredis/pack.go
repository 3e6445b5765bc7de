package luaredis

import (
	"regexp"
	"strconv"

	lua "github.com/yuin/gopher-lua"
)

var fields = regexp.MustCompile(`B|I(\d+)|c0`)

// size is the bytes of a field that is a number.
func size(field []string) int {
	if field[0] == "B" {
		return 1
	}
	n, _ := strconv.Atoi(field[1]) // digits, by the expression
	return n
}

// pack and unpack are those of the struct library, as far as scripts use them: little-endian unsigned integers, and strings of
// the length that goes before them.
func pack(state *lua.LState) int {
	var out []byte
	for i, f := range fields.FindAllStringSubmatch(state.CheckString(1), -1) {
		if v := state.Get(i + 2); f[0] == "c0" {
			out = append(out, v.String()...)
		} else {
			n := uint64(v.(lua.LNumber))
			for range size(f) {
				out, n = append(out, byte(n)), n>>8
			}
		}
	}
	state.Push(lua.LString(out))
	return 1
}

func unpack(state *lua.LState) int {
	s, pos, last, n := state.CheckString(2), state.OptInt(3, 1)-1, 0, 1
	for _, f := range fields.FindAllStringSubmatch(state.CheckString(1), -1) {
		if f[0] == "c0" {
			state.Pop(1) // the length
			state.Push(lua.LString(s[pos : pos+last]))
			pos += last
			continue
		}
		last = 0
		for i := pos + size(f) - 1; i >= pos; i-- {
			last = last<<8 | int(s[i])
		}
		state.Push(lua.LNumber(last))
		pos, n = pos+size(f), n+1
	}
	state.Push(lua.LNumber(pos + 1))
	return n
}

// packAll, unpackAll and unpackOne are those of cmsgpack. The text is the number of what was packed.
func (s *Server) packAll(state *lua.LState) int {
	s.Packed = 0
	var values []any
	for i := range state.GetTop() {
		values = append(values, s.plain(state.Get(1+i)))
	}
	s.packed = append(s.packed, values)
	state.Push(lua.LString(strconv.Itoa(len(s.packed) - 1)))
	return 1
}

func (s *Server) unpackAll(state *lua.LState) int {
	i, _ := strconv.Atoi(state.CheckString(1))
	for _, v := range s.packed[i] {
		state.Push(value(state, v))
	}
	return len(s.packed[i])
}

func (s *Server) unpackOne(state *lua.LState) int {
	i, _ := strconv.Atoi(state.CheckString(1))
	state.Push(lua.LNumber(1))
	state.Push(value(state, s.packed[i][0]))
	return 2
}

// plain is a value without its state.
func (s *Server) plain(v lua.LValue) any {
	t, ok := v.(*lua.LTable)
	if !ok {
		s.Packed++
		return float64(v.(lua.LNumber))
	}
	m := map[float64]any{}
	t.ForEach(func(k, v lua.LValue) { m[float64(k.(lua.LNumber))] = s.plain(v) })
	return m
}

func value(state *lua.LState, v any) lua.LValue {
	m, ok := v.(map[float64]any)
	if !ok {
		return lua.LNumber(v.(float64))
	}
	t := state.NewTable()
	for i := 1; i <= len(m); i++ { // arrays first, in their order
		if v, ok := m[float64(i)]; ok {
			t.RawSetInt(i, value(state, v))
		}
	}
	for k, v := range m {
		t.RawSet(lua.LNumber(k), value(state, v))
	}
	return t
}
