-- What the modes of gates mean; see gateOf in state.lua.

-- Those whose time the destination asked for.
local ASKED = {['0'] = true, ['2'] = true}
local CAUSE = {['0'] = 'throttled', ['1'] = 'failing', ['2'] = 'throttled', ['3'] = 'misconfigured', ['4'] = 'throttled', ['5'] = 'refused'}
