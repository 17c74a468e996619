{{- define "headway.name" -}}
{{- .Values.nameOverride | default .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "headway.labels" -}}
app.kubernetes.io/name: headway
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "headway.selector" -}}
app.kubernetes.io/name: headway
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "headway.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- if and .Values.store.enabled (not .Values.store.url) (not .Values.store.existingSecret) -}}
{{- $_ := set $config "jobs" (merge (dict "store" "/var/lib/headway/jobs.db") (default (dict) $config.jobs)) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}
