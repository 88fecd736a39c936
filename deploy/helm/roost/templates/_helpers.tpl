{{- define "roost.name" -}}
{{- if contains "roost" .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{ else }}{{ printf "%s-roost" .Release.Name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "roost.selector" -}}
app.kubernetes.io/name: roost
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "roost.labels" -}}
{{ include "roost.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "roost.account" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "roost.name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}
