package main

import _ "time/tzdata" // calendars and active hours need zones, also where the system has none
