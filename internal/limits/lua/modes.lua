-- What the modes of gates mean; see gateOf in state.lua.

local CAUSE = {['0'] = 'throttled', ['1'] = 'failing', ['2'] = 'misconfigured', ['3'] = 'refused', ['4'] = 'throttled'}
