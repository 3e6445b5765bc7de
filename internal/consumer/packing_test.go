package consumer

import "testing"

// TestAReadIsChargedForWhatItBrings: for what it fetches, as it is compressed, and for the jobs that it hands over.
func TestAReadIsChargedForWhatItBrings(t *testing.T) {
	var p packing
	if n := p.packed(100_000); n != 100_000 {
		t.Errorf("%d bytes before anything was read", n)
	}
	p.note(0, 0)
	p.took(0, 0)
	for range 100 {
		p.note(10_000, 100_000)
		p.took(10, 8000)
	}
	if n := p.packed(100_000); n < 9_900 || n > 10_200 {
		t.Errorf("%d bytes, want 10000: records are a tenth as large when compressed", n)
	}
	if n := p.jobs(100); n < 79_000 || n > 80_000 {
		t.Errorf("%d bytes for 100 jobs of 800", n)
	}
	if n := p.jobs(1 << 40); n != p.jobs(laneJobs) || n == 0 {
		t.Errorf("%d bytes for more jobs than a read hands over", n)
	}
	p.note(200_000, 100_000) // one batch was read in part
	if n := p.packed(100_000); n < 10_000 || n > 100_000 {
		t.Errorf("%d bytes", n)
	}
	for range 100 {
		p.took(1, 1<<20)
	}
	if n := p.jobs(1000); n != expansion*maxFetchBytes {
		t.Errorf("%d bytes of large jobs, of which a read takes %d at once", n, expansion*maxFetchBytes)
	}
}
