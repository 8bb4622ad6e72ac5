{{- define "astargate.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "astargate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "astargate.labels" -}}
{{ include "astargate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "astargate.keysSecret" -}}
{{- if .Values.apiKeys.existingSecret -}}
{{- .Values.apiKeys.existingSecret -}}
{{- else if .Values.apiKeys.value -}}
{{- printf "%s-keys" (include "astargate.name" .) -}}
{{- end -}}
{{- end -}}

{{- /* SQLite on a volume belongs to one pod. */ -}}
{{- define "astargate.ownsVolume" -}}
{{- if and .Values.persistence.enabled (not .Values.database.existingSecret) -}}yes{{- end -}}
{{- end -}}
