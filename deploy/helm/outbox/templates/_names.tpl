{{/* What a pod of this release is known by; a Deployment's selector cannot be changed later. */}}
{{- define "outbox.selector" -}}
app.kubernetes.io/name: outbox
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "outbox.labels" -}}
{{ include "outbox.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "outbox.name" -}}
{{- if contains "outbox" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}{{ printf "%s-outbox" (.Release.Name | trunc 45 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "outbox.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "outbox.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary (include "outbox.name" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{/* The restricted level of the Pod Security Standards, and a file system that takes no writes. */}}
{{- define "outbox.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "outbox.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* The addresses are the chart's: probes and services name their ports. */}}
{{- define "outbox.config" -}}
{{- $config := merge (dict "listen" "0.0.0.0:9464") .Values.config }}
{{- if has "gateway" .Values.parts }}{{ $config = merge (dict "http" "0.0.0.0:8080") $config }}{{ end }}
{{- toYaml $config }}
{{- end }}
