{{- define "pacer.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "pacer.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "pacer.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "pacer.selector" . }}
{{- end }}

{{- define "pacer.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end }}

{{/* The job of Prometheus: the rules watch pacer.* and keep installations apart by it. */}}
{{- define "pacer.job" -}}
{{ printf "pacer-%s-%s" .Release.Namespace .Release.Name }}
{{- end }}

{{/* The configuration: the values, what the chart decides, and references to the files of secrets. */}}
{{- define "pacer.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $_ := mustMergeOverwrite $config (dict "http" (dict "listen" "0.0.0.0:8080")) -}}
{{- $_ := set $config "shutdown_timeout" (printf "%ds" (sub .Values.terminationGracePeriodSeconds 20)) -}}
{{- with .Values.service.metricsPort -}}
{{- $_ := mustMergeOverwrite $config (dict "http" (dict "metrics_listen" (printf "0.0.0.0:%v" .))) -}}
{{- end -}}
{{- with .Values.console.basePath -}}
{{- $_ := mustMergeOverwrite $config (dict "http" (dict "base_path" .)) -}}
{{- end -}}
{{- $secrets := "file:/etc/pacer/secrets/" -}}
{{- if .Values.existingSecret -}}
{{- with .Values.secretKeys.postgres -}}
{{- $_ := mustMergeOverwrite $config (dict "postgres" (dict "dsn" (print $secrets .))) -}}
{{- end -}}
{{- with .Values.secretKeys.kafka -}}
{{- $_ := mustMergeOverwrite $config (dict "kafka" (dict "sasl" (dict "password" (print $secrets .)))) -}}
{{- end -}}
{{- with .Values.secretKeys.redis -}}
{{- $_ := mustMergeOverwrite $config (dict "redis" (dict "password" (print $secrets .))) -}}
{{- end -}}
{{- with .Values.secretKeys.tokens -}}
{{- $_ := mustMergeOverwrite $config (dict "http" (dict "tokens" (print $secrets .))) -}}
{{- end -}}
{{- else if or .Values.secretKeys.kafka .Values.secretKeys.redis .Values.secretKeys.tokens -}}
{{- fail "existingSecret is needed: the Secret that has the keys of secretKeys" -}}
{{- end -}}
{{- if not $config.default_sink -}}{{- $_ := unset $config "default_sink" -}}{{- end -}}
{{ toYaml $config }}
{{- end }}

{{/* The pod (set "of" to "pod") or the container of one that reaches PostgreSQL as another role than daemons: mounts the Secret of that role
as /etc/pacer/NAME. Give it (dict "of" "pod" "it" POD "name" NAME "secret" SECRET "key" KEY). */}}
{{- define "pacer.asRole" -}}
{{- if not (and .secret .key) -}}
{{- else if eq .of "pod" -}}
{{- $_ := set .it "volumes" (append .it.volumes (dict "name" .name "secret" (dict "secretName" .secret "defaultMode" 288))) -}}
{{- else -}}
{{- $_ := set .it "volumeMounts" (append .it.volumeMounts (dict "name" .name "mountPath" (print "/etc/pacer/" .name) "readOnly" true)) -}}
{{- $_ := set .it "env" (append (default list (get .it "env")) (dict "name" "PACER_POSTGRES_DSN" "value" (printf "file:/etc/pacer/%s/%s" .name .key))) -}}
{{- end -}}
{{ toYaml .it }}
{{- end }}

{{/* What every container of pacer has; give it (dict "root" $ "args" (list …)). */}}
{{- define "pacer.container" -}}
image: {{ include "pacer.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
args: {{ toJson .args }}
securityContext: {{- toYaml .root.Values.securityContext | nindent 2 }}
{{- with .root.Values.extraEnv }}
env: {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - {name: config, mountPath: /etc/pacer/pacer.yaml, subPath: pacer.yaml, readOnly: true}
  {{- if .root.Values.existingSecret }}
  - {name: secrets, mountPath: /etc/pacer/secrets, readOnly: true}
  {{- end }}
  {{- with .root.Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* The ports of a container that serves HTTP. */}}
{{- define "pacer.ports" -}}
- {name: http, containerPort: 8080}
{{- with .Values.service.metricsPort }}
- {name: metrics, containerPort: {{ . }}}
{{- end }}
{{- end }}

{{/* The port of probes and of metrics: others cannot take all connections of one of its own. */}}
{{- define "pacer.metricsPort" -}}
{{ if .Values.service.metricsPort }}metrics{{ else }}http{{ end }}
{{- end }}

{{/* What every pod of pacer has; give it (dict "root" $ "config" NAME of its ConfigMap). */}}
{{- define "pacer.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext: {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
volumes:
  - name: config
    configMap: {name: {{ .config }}}
  {{- with .root.Values.existingSecret }}
  - name: secrets
    secret: {secretName: {{ . }}, defaultMode: 0440}
  {{- end }}
  {{- with .root.Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
