package delivery

import "testing"

func TestTopicID(t *testing.T) {
	id := NewTopicID([16]byte{1, 2, 250, 255})
	if !id.Known() || len(id.String()) != 22 || ParseTopicID(id.String()) != id || NewTopicID([16]byte{1, 2, 250, 255}) != id {
		t.Errorf("%q is not what it was made of", id)
	}
	if none := NewTopicID([16]byte{}); none.Known() || none.String() != "" || none != (TopicID{}) {
		t.Errorf("no id is known as %q", none)
	}
	for _, s := range []string{"", "x", "AAAAAAAAAAAAAAAAAAAAAA", id.String() + "A", "*" + id.String()[1:], id.String()[1:]} {
		if got := ParseTopicID(s); got.Known() {
			t.Errorf("%q is parsed as %s", s, got)
		}
	}
}
