package record

import "strings"

// traceParentLength is the length of version 00 of W3C Trace Context; later versions may only be longer.
const traceParentLength = 55

// validTraceParent returns the value if it is valid. As W3C Trace Context specifies, an invalid one is ignored.
func validTraceParent(value []byte) string {
	if len(value) < traceParentLength || len(value) > 256 {
		return ""
	}
	version, trace, parent, flags, rest := value[:2], value[3:35], value[36:52], value[53:55], value[traceParentLength:]
	switch {
	case value[2] != '-' || value[35] != '-' || value[52] != '-':
	case !hex(version) || !hex(trace) || !hex(parent) || !hex(flags) || zeros(trace) || zeros(parent):
	case string(version) == "ff":
	case len(rest) > 0 && (string(version) == "00" || rest[0] != '-' || !printable(string(rest))):
	default:
		return string(value)
	}
	return ""
}

func hex(digits []byte) bool {
	for _, c := range digits {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func zeros(digits []byte) bool { return strings.Trim(string(digits), "0") == "" }
