package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// panel is a graph, or single numbers.
type panel struct {
	title, about string
	unit         string // as Grafana spells it
	width        int    // of 24
	numbers      bool   // the newest values instead of a graph
	dashed       bool   // what the second query returns is a limit
	queries      []query
}

type query struct{ expr, legend string }

// section is a row of the dashboard with the panels below it.
type section struct {
	title  string
	panels []panel
}

// variable is what a reader chooses at the top; a query matches it by its label.
type variable struct{ name, label, title, of string }

// source is the data source that deploy/grafana/provisioning makes.
var source = map[string]string{"type": "prometheus", "uid": "prometheus"}

// selectors are what {@}, {@campaign} and so on in a query stand for.
var selectors = func() *strings.Replacer {
	job := `job=~"$job"`
	pairs := []string{"{@}", "{" + job + "}", "{@,", "{" + job + ","}
	for _, v := range variables[1:] {
		with := fmt.Sprintf(`{%s,%s=~"$%s"`, job, v.label, v.name)
		pairs = append(pairs, "{@"+v.name+"}", with+"}", "{@"+v.name+",", with+",")
	}
	return strings.NewReplacer(pairs...)
}()

// dashboard is the dashboard as Grafana reads it.
func dashboard() ([]byte, error) {
	var list []any
	for _, v := range variables {
		list = append(list, v.model())
	}
	text, err := json.MarshalIndent(map[string]any{
		"uid": "pacer", "title": "pacer", "tags": []string{"pacer"}, "editable": true, "schemaVersion": 39, "version": 1, "timezone": "browser",
		"description": "Deliveries, rates, quotas, daemons and sinks of pacer. Made by scripts/reference (make reference).",
		"time":        map[string]string{"from": "now-15m", "to": "now"}, "refresh": "5s", "graphTooltip": 1,
		"templating": map[string]any{"list": list}, "panels": panels(),
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the dashboard: %w", err)
	}
	return append(text, '\n'), nil
}

// panels places the panels from left to right, in lines that are as high as their kind.
func panels() (list []any) {
	id, y := 0, 0
	for _, s := range sections {
		id++
		list = append(list, map[string]any{
			"id": id, "type": "row", "title": s.title, "collapsed": false, "panels": []any{},
			"gridPos": map[string]int{"x": 0, "y": y, "w": 24, "h": 1},
		})
		y++
		x, high := 0, 0
		for _, p := range s.panels {
			if x+p.width > 24 {
				x, y = 0, y+high
			}
			id++
			high = p.height()
			list = append(list, p.model(id, map[string]int{"x": x, "y": y, "w": p.width, "h": high}))
			x += p.width
		}
		y += high
	}
	return list
}

// namesTraces reports whether a query is of a histogram whose exemplars name traces.
func namesTraces(expr string) bool {
	return slices.ContainsFunc([]string{"pacer_slot_lateness_seconds", "pacer_sink_seconds"}, func(histogram string) bool {
		return strings.Contains(expr, histogram+"_bucket")
	})
}

func (p panel) height() int {
	if p.numbers {
		return 4
	}
	return 8
}

func (p panel) model(id int, place map[string]int) map[string]any {
	var targets []any
	for i, q := range p.queries {
		target := map[string]any{
			"refId": string(rune('A' + i)), "datasource": source, "expr": selectors.Replace(q.expr), "legendFormat": q.legend,
		}
		if i == 0 && namesTraces(q.expr) { // once for all quantiles
			target["exemplar"] = true
		}
		targets = append(targets, target)
	}
	m := map[string]any{
		"id": id, "title": p.title, "description": p.about, "datasource": source, "gridPos": place, "targets": targets,
	}
	if p.numbers {
		m["type"] = "stat"
		m["fieldConfig"] = map[string]any{"defaults": map[string]any{"unit": p.unit}, "overrides": []any{}}
		m["options"] = map[string]any{"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}}, "textMode": "value_and_name", "colorMode": "none"}
		return m
	}
	var overrides []any
	if p.dashed {
		overrides = append(overrides, map[string]any{
			"matcher": map[string]string{"id": "byFrameRefID", "options": "B"},
			"properties": []any{
				map[string]any{"id": "custom.lineStyle", "value": map[string]any{"fill": "dash", "dash": []int{6, 6}}},
				map[string]any{"id": "custom.fillOpacity", "value": 0},
			},
		})
	}
	m["type"] = "timeseries"
	m["fieldConfig"] = map[string]any{
		"defaults": map[string]any{
			"unit": p.unit, "min": 0, "custom": map[string]any{"lineWidth": 1, "fillOpacity": 5, "showPoints": "never"},
		},
		"overrides": overrides,
	}
	m["options"] = map[string]any{
		"legend": map[string]string{"displayMode": "list", "placement": "bottom"}, "tooltip": map[string]string{"mode": "multi", "sort": "desc"},
	}
	return m
}

func (v variable) model() map[string]any {
	values := fmt.Sprintf("label_values(%s, %s)", selectorsOf(v), v.label)
	return map[string]any{
		"name": v.name, "label": v.title, "type": "query", "datasource": source, "definition": values,
		"query":   map[string]string{"query": values, "refId": v.name},
		"refresh": 2, "multi": true, "includeAll": true, "allValue": ".*", "sort": 1,
		"current": map[string][]string{"text": {"All"}, "value": {"$__all"}},
	}
}

// selectorsOf narrows the values of all variables but the first down to the installation.
func selectorsOf(v variable) string {
	if v.label == "job" {
		return v.of
	}
	return v.of + `{job=~"$job"}`
}
