{{- define "sconce.name" -}}
{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "sconce.selector" -}}
app.kubernetes.io/name: sconce
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sconce.labels" -}}
{{ include "sconce.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Not empty where a replica is several pods. */}}
{{- define "sconce.split" -}}
{{- if gt (int .Values.ranks.hosts) 1 }}yes{{ end -}}
{{- end }}

{{/* Who changes the number of replicas changes this. */}}
{{- define "sconce.scaled" -}}
{{- if include "sconce.split" . -}}
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
{{- else -}}
apiVersion: apps/v1
kind: Deployment
{{- end }}
name: {{ include "sconce.name" . }}
{{- end }}

{{/* An environment variable from an optional Secret: (name, {secret, key}). */}}
{{- define "sconce.secret" -}}
{{- $name := index . 0 }}{{ $from := index . 1 -}}
{{- if $from.secret -}}
- name: {{ $name }}
  valueFrom:
    secretKeyRef: { name: {{ $from.secret }}, key: {{ $from.key }}, optional: {{ eq $name "SCONCE_STORE" }} }
{{- end }}
{{- end }}

{{- define "sconce.args" -}}
- serve
{{- with .Values.model }}
- --model={{ . }}
{{- end }}
- --host=0.0.0.0
- --port={{ .Values.port }}
- --drain-delay={{ .Values.drain.delay }}
- --drain-timeout={{ .Values.drain.timeout }}
{{- with .Values.kvEvents }}
{{- if .enabled }}
- {{ printf "--kv-events-config=%s" (dict "enable_kv_cache_events" true "endpoint" (printf "tcp://*:%d" (int .port)) "replay_endpoint" (printf "tcp://*:%d" (int .replayPort)) "topic" .topic | toJson) | squote }}
{{- end }}
{{- end }}
{{- if include "sconce.split" . }}
- --tensor-parallel={{ mul .Values.ranks.hosts .Values.ranks.perHost }}
# What LeaderWorkerSet tells each pod of its group.
- --nnodes=$(LWS_GROUP_SIZE)
- --node-rank=$(LWS_WORKER_INDEX)
- --master-addr=$(LWS_LEADER_ADDRESS)
- --master-port={{ .Values.ranks.port }}
- --rank-secret-file=/ranks/{{ .Values.ranks.secret.key }}
{{- end }}
{{- range .Values.args }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- define "sconce.probes" -}}
# Loading may take minutes; the other probes wait for this one.
startupProbe:
  httpGet: { path: /health/startup, port: http }
  periodSeconds: 5
  failureThreshold: {{ div (add .Values.startupSeconds 4) 5 }}
# Not ready takes the pod out of the Service: draining, or the engine is stuck.
readinessProbe:
  httpGet: { path: /health/ready, port: http }
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
# Not live restarts it.
livenessProbe:
  httpGet: { path: /health/live, port: http }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
{{- end }}

{{/* The template of pods that serve, or (root, "worker") of pods that only compute for one that does. */}}
{{- define "sconce.pod" -}}
{{- $ := index . 0 }}{{ $serves := ne (index . 1) "worker" }}{{ $split := include "sconce.split" $ -}}
metadata:
  labels:
    {{- if $serves }}
    {{- include "sconce.selector" $ | nindent 4 }}
    # Inference gateways take metric names from the engine type; ours are the same.
    llm-d.ai/engine-type: vllm
    {{- else }}
    app.kubernetes.io/name: sconce-rank
    app.kubernetes.io/instance: {{ $.Release.Name }}
    {{- end }}
    {{- with $.Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if $serves }}
  annotations:
    prometheus.io/scrape: "true"
    prometheus.io/port: {{ $.Values.port | quote }}
    prometheus.io/path: /metrics
    {{- with $.Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  # Else the address of the Service would be in SCONCE_PORT, which is a setting.
  enableServiceLinks: false
  automountServiceAccountToken: false
  # The drain's delay and timeout and a margin: a longer drain would be cut by SIGKILL.
  terminationGracePeriodSeconds: {{ add $.Values.drain.delay $.Values.drain.timeout $.Values.drain.margin }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    # A volume with many files is not walked through at each start.
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: { type: RuntimeDefault }
  {{- with $.Values.serviceAccountName }}
  serviceAccountName: {{ . }}
  {{- end }}
  {{- with $.Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- range $key, $value := pick $.Values "nodeSelector" "tolerations" "affinity" }}
  {{- with $value }}
  {{ $key }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- if and $.Values.spread (not $split) }}
  # Replicas that share a node share its end.
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "sconce.selector" $ | nindent 10 }}
  {{- end }}
  containers:
    - name: sconce
      image: "{{ $.Values.image.repository }}:{{ $.Values.image.tag | default $.Chart.AppVersion }}"
      imagePullPolicy: {{ $.Values.image.pullPolicy }}
      args:
        {{- include "sconce.args" $ | nindent 8 }}
      {{- if $serves }}
      ports:
        - { name: http, containerPort: {{ $.Values.port }} }
        {{- if $.Values.kvEvents.enabled }}
        - { name: kv-events, containerPort: {{ $.Values.kvEvents.port }} }
        - { name: kv-replay, containerPort: {{ $.Values.kvEvents.replayPort }} }
        {{- end }}
        {{- if $split }}
        - { name: ranks, containerPort: {{ $.Values.ranks.port }} }
        {{- end }}
      {{- end }}
      env:
        - { name: HF_HOME, value: /cache/huggingface }
        - { name: XDG_STATE_HOME, value: /cache/state }
        {{- with include "sconce.secret" (list "HF_TOKEN" $.Values.hubToken) }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- if $serves }}
        {{- with include "sconce.secret" (list "SCONCE_API_KEY" $.Values.apiKey) }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with include "sconce.secret" (list "SCONCE_STORE" $.Values.store) }}
        # So that all replicas know what one has stored. Without the Secret each has a file of its own.
        {{- . | nindent 8 }}
        {{- end }}
        {{- end }}
        {{- with $.Values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      resources:
        {{- toYaml $.Values.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: { drop: [ALL] }
      volumeMounts:
        - { name: cache, mountPath: /cache }
        - { name: tmp, mountPath: /tmp }
        {{- if $split }}
        - { name: ranks, mountPath: /ranks, readOnly: true }
        {{- end }}
      {{- if $serves }}
      {{- include "sconce.probes" $ | nindent 6 }}
      {{- end }}
  volumes:
    - name: cache
      {{- if $.Values.cache.claim }}
      persistentVolumeClaim: { claimName: {{ $.Values.cache.claim }} }
      {{- else if $.Values.cache.sizeLimit }}
      emptyDir: { sizeLimit: {{ $.Values.cache.sizeLimit }} }
      {{- else }}
      # Lost with the pod; a PersistentVolumeClaim keeps downloaded models.
      emptyDir: {}
      {{- end }}
    - name: tmp
      emptyDir: {}
    {{- if $split }}
    - name: ranks
      secret: { secretName: {{ $.Values.ranks.secret.name }}, defaultMode: 0440 }
    {{- end }}
{{- end }}
