{{- define "turnout.name" -}}
{{- if contains "turnout" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-turnout" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "turnout.selector" -}}
app.kubernetes.io/name: turnout
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "turnout.labels" -}}
{{ include "turnout.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "turnout.serviceAccount" -}}
{{- if .Values.serviceAccount.name }}{{ .Values.serviceAccount.name }}{{ else if .Values.serviceAccount.create }}{{ include "turnout.name" . }}{{ else }}default{{ end }}
{{- end }}

{{- /* The file of --config: the options of the values and those that the chart sets. */}}
{{- define "turnout.config" -}}
{{- $own := dict "host" "0.0.0.0" "port" .Values.ports.http "prometheus-host" "0.0.0.0" "prometheus-port" .Values.ports.metrics "data-dir" "/data" }}
{{- if .Values.ports.admin }}
{{- $_ := set $own "admin-host" "0.0.0.0" }}
{{- $_ := set $own "admin-port" .Values.ports.admin }}
{{- end }}
{{- if .Values.picker.enabled }}
{{- $_ := set $own "picker-host" "0.0.0.0" }}
{{- $_ := set $own "picker-port" .Values.picker.port }}
{{- $_ := set $own "picker-health-port" .Values.picker.healthPort }}
{{- if or .Values.picker.inferencePool.create .Values.picker.inferencePool.name }}
{{- $_ := set $own "pool-name" (include "turnout.pool" .) }}
{{- end }}
{{- if include "turnout.isElected" . | eq "true" }}
{{- if or (hasKey .Values.options "swap-snapshots") (hasKey .Values.options "deployments") }}
{{- fail "picker.replicas: weight swaps (options.swap-snapshots, options.deployments) need one replica, because replicas do not share which weights the engines must have" }}
{{- end }}
{{- $_ := set $own "leader-election" (include "turnout.name" .) }}
{{- end }}
{{- end }}
{{- with .Values.keys }}
{{- if .existingSecret }}
{{- if .apiKeys }}{{ $_ := set $own "api-key-file" (printf "/etc/turnout/keys/%s" .apiKeys) }}{{ end }}
{{- if .adminKeys }}{{ $_ := set $own "admin-api-key-file" (printf "/etc/turnout/keys/%s" .adminKeys) }}{{ end }}
{{- end }}
{{- end }}
{{- toYaml (merge $own .Values.options) }}
{{- end }}

{{- /* Whether several pickers run, of which one leads. */}}
{{- define "turnout.isElected" -}}
{{- and .Values.picker.enabled (gt (int .Values.picker.replicas) 1) }}
{{- end }}

{{- define "turnout.pool" -}}
{{- .Values.picker.inferencePool.name | default (include "turnout.name" .) }}
{{- end }}

{{- /* Not at the data port: it closes connections above its limits, and may require client certificates, which the kubelet does not have. */}}
{{- define "turnout.probe" -}}
{{- if .root.Values.picker.enabled -}}
grpc: { port: {{ .root.Values.picker.healthPort }}, service: {{ trimPrefix "/" .path }} }
{{- else -}}
httpGet: { path: {{ .path }}, port: metrics }
{{- end }}
{{- end }}
