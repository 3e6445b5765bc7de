-- What the modes of gates mean; see gateOf in state.lua.

-- The time of this one was asked for by the destination.
local ASKED = '0'
local CAUSE = {['0'] = 'throttled', ['1'] = 'failing', ['2'] = 'misconfigured', ['3'] = 'refused', ['4'] = 'throttled'}
