package delivery

import (
	"fmt"
	"reflect"
	"testing"
)

func TestKeyWaitsAreAddedUp(t *testing.T) {
	a := []KeyWaits{{"chat", 3, []KeyJobs{{"x", 2}, {"y", 1}}}, {"cap", 9, []KeyJobs{{"x", 9}}}}
	b := []KeyWaits{{"chat", 7, []KeyJobs{{"y", 4}}}, {"hook", 1, nil}}
	want := []KeyWaits{{"chat", 10, []KeyJobs{{"y", 5}, {"x", 2}}}, {"cap", 9, []KeyJobs{{"x", 9}}}, {"hook", 1, []KeyJobs{}}}
	if got := SumKeyWaits(append(a, b...)); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if a[0].Busiest[1].Key != "y" || a[0].Busiest[1].Jobs != 1 {
		t.Errorf("what was given is changed: %+v", a)
	}
	var many []KeyWaits
	for i := range 3 * maxKeyQuotas {
		one := KeyWaits{Quota: fmt.Sprint(i), Waiting: int64(i)}
		for k := range 3 * maxBusiest {
			one.Busiest = append(one.Busiest, KeyJobs{fmt.Sprint(k), int64(k)})
		}
		many = append(many, one)
	}
	got := SumKeyWaits(many)
	if len(got) != maxKeyQuotas || got[0].Waiting != 3*maxKeyQuotas-1 || len(got[0].Busiest) != maxBusiest || got[0].Busiest[0].Jobs != 3*maxBusiest-1 {
		t.Errorf("%d quotas, %+v", len(got), got[0])
	}
}
