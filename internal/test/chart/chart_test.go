package chart_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	chartDir  = "../../../deploy/helm/outbox"
	manifests = "../../../deploy/kubernetes/outbox.yaml"
)

// object is one of those that a release consists of.
type object interface {
	GetName() string
	GetLabels() map[string]string
}

// serviceMonitor is as much of the Prometheus operator's type as the chart writes.
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port     string `json:"port"`
			Interval string `json:"interval"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// kinds are all that the chart may make. A Secret and rights are not among them.
var kinds = map[string]func() object{
	"apps/v1 Deployment":                      func() object { return new(appsv1.Deployment) },
	"batch/v1 Job":                            func() object { return new(batchv1.Job) },
	"monitoring.coreos.com/v1 ServiceMonitor": func() object { return new(serviceMonitor) },
	"networking.k8s.io/v1 NetworkPolicy":      func() object { return new(networkingv1.NetworkPolicy) },
	"policy/v1 PodDisruptionBudget":           func() object { return new(policyv1.PodDisruptionBudget) },
	"v1 ConfigMap":                            func() object { return new(corev1.ConfigMap) },
	"v1 Service":                              func() object { return new(corev1.Service) },
	"v1 ServiceAccount":                       func() object { return new(corev1.ServiceAccount) },
}

// release is what one set of values makes, by kind and name.
type release map[string]object

// values of the chart: the defaults, and those of testdata.
func values(t *testing.T) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{"defaults": {}}
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files of values, %v", len(files), err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		of := map[string]any{}
		if err := yaml.UnmarshalStrict(text, &of); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		all[strings.TrimSuffix(filepath.Base(f), ".yaml")] = of
	}
	return all
}

// render is helm template.
func render(of map[string]any) (map[string]string, error) {
	chart, err := loader.Load(chartDir)
	if err != nil {
		return nil, err
	}
	with, err := util.ToRenderValues(chart, of, common.ReleaseOptions{Name: "outbox", Namespace: "shop", Revision: 1,
		IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.Render(chart, with)
}

// documents are the objects of a release as text, in the order of their files.
func documents(files map[string]string) (texts []string) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) != ".yaml" {
			continue
		}
		for text := range strings.SplitSeq(files[name], "\n---\n") {
			if strings.TrimSpace(text) != "" {
				texts = append(texts, strings.TrimSpace(text)+"\n")
			}
		}
	}
	return texts
}

func decoded(t *testing.T, of map[string]any) release {
	t.Helper()
	files, err := render(of)
	if err != nil {
		t.Fatal(err)
	}
	r := release{}
	for _, text := range documents(files) {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		make := kinds[kind.APIVersion+" "+kind.Kind]
		if make == nil {
			t.Fatalf("the chart makes a %s of %s", kind.Kind, kind.APIVersion)
		}
		o := make()
		if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		r[kind.Kind+" "+o.GetName()] = o
	}
	return r
}

func TestLint(t *testing.T) {
	for name, of := range values(t) {
		for _, m := range lint.RunAll(chartDir, of, "shop").Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// Each set of values makes what it asks for, and the program takes the settings.
func TestRelease(t *testing.T) {
	always := []string{"ConfigMap outbox", "Deployment outbox", "Service outbox-metrics"}
	usual := append([]string{"NetworkPolicy outbox", "PodDisruptionBudget outbox", "ServiceAccount outbox"}, always...)
	want := map[string][]string{"defaults": usual, "available": usual,
		"gateway": append([]string{"Service outbox", "ServiceMonitor outbox"}, usual...),
		"hook":    append([]string{"Job outbox-migrate"}, always...)}
	for name, of := range values(t) {
		t.Run(name, func(t *testing.T) {
			r := decoded(t, of)
			got := slices.Sorted(maps.Keys(r))
			slices.Sort(want[name])
			if !slices.Equal(got, want[name]) {
				t.Errorf("the release has %v, want %v", got, want[name])
			}
			deployment := r["Deployment outbox"].(*appsv1.Deployment)
			restricted(t, deployment.Spec.Template.Spec)
			connected(t, r, deployment)
			accepted(t, r["ConfigMap outbox"].(*corev1.ConfigMap), deployment.Spec.Template.Spec.Containers[0].Args)
			if job, ok := r["Job outbox-migrate"].(*batchv1.Job); ok {
				restricted(t, job.Spec.Template.Spec)
				hooked(t, job)
			}
		})
	}
}

// restricted is the level of that name of the Pod Security Standards, and a file system that takes
// no writes.
func restricted(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	s := pod.SecurityContext
	if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0 ||
		s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the pod is not restricted: %+v", s)
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Error("the pod has a token of the cluster")
	}
	if pod.HostNetwork || pod.HostPID || pod.HostIPC {
		t.Error("the pod has namespaces of its host")
	}
	for _, v := range pod.Volumes {
		if v.ConfigMap != nil && (v.ConfigMap.DefaultMode == nil || *v.ConfigMap.DefaultMode != 0o440) {
			t.Errorf("others may read the settings: %+v", v.ConfigMap)
		}
	}
	for _, c := range pod.Containers {
		s := c.SecurityContext
		if s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.AllowPrivilegeEscalation == nil ||
			*s.AllowPrivilegeEscalation || s.Capabilities == nil ||
			!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
			t.Errorf("%s is not restricted: %+v", c.Name, s)
		}
		if len(c.Env) > 0 || len(c.EnvFrom) != 1 || c.EnvFrom[0].SecretRef == nil {
			t.Errorf("%s has its secrets from elsewhere than one Secret: %+v, %+v", c.Name, c.Env, c.EnvFrom)
		}
		if c.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s has no limit of memory", c.Name)
		}
	}
}

// connected says that selectors find the pods, and ports and probes the port of the same name.
func connected(t *testing.T, r release, d *appsv1.Deployment) {
	t.Helper()
	pod, container := d.Spec.Template, d.Spec.Template.Spec.Containers[0]
	ports := map[string]int32{}
	for _, p := range container.Ports {
		ports[p.Name] = p.ContainerPort
	}
	selectors := map[string]map[string]string{"Deployment": d.Spec.Selector.MatchLabels}
	for name, o := range r {
		switch o := o.(type) {
		case *corev1.Service:
			selectors[name] = o.Spec.Selector
			for _, p := range o.Spec.Ports {
				if ports[p.TargetPort.String()] == 0 {
					t.Errorf("%s leads to port %s, which no container has", name, p.TargetPort.String())
				}
			}
		case *policyv1.PodDisruptionBudget:
			selectors[name] = o.Spec.Selector.MatchLabels
		case *networkingv1.NetworkPolicy:
			selectors[name] = o.Spec.PodSelector.MatchLabels
			for _, rule := range o.Spec.Ingress {
				for _, p := range rule.Ports {
					if ports[p.Port.String()] == 0 {
						t.Errorf("%s lets port %s through, which no container has", name, p.Port)
					}
				}
			}
		case *serviceMonitor:
			if !subset(o.Spec.Selector.MatchLabels, r["Service outbox-metrics"].GetLabels()) {
				t.Errorf("%s selects %v, the service has %v", name, o.Spec.Selector.MatchLabels, r["Service outbox-metrics"].GetLabels())
			}
		}
	}
	for name, s := range selectors {
		if len(s) == 0 || !subset(s, pod.Labels) {
			t.Errorf("%s selects %v, pods have %v", name, s, pod.Labels)
		}
	}
	for _, p := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
		if p == nil || ports[p.HTTPGet.Port.String()] == 0 {
			t.Errorf("a probe asks %+v, the container has %v", p, ports)
		}
	}
	part := path.Base(container.ReadinessProbe.HTTPGet.Path)
	if gateway := ports["http"] != 0; gateway != (part == "gateway") || !gateway && part != "relay" {
		t.Errorf("the readiness probe asks of %s, ports are %v", part, ports)
	}
	if account, ok := r["ServiceAccount "+pod.Spec.ServiceAccountName]; !ok && pod.Spec.ServiceAccountName != "default" {
		t.Errorf("the pod's service account is %s: %v", pod.Spec.ServiceAccountName, account)
	}
}

func subset(of, all map[string]string) bool {
	for k, v := range of {
		if all[k] != v {
			return false
		}
	}
	return true
}

// hooked says that the job needs nothing of the release, which is not there yet.
func hooked(t *testing.T, job *batchv1.Job) {
	t.Helper()
	if job.Annotations["helm.sh/hook"] != "pre-install,pre-upgrade" || job.Spec.Template.Spec.ServiceAccountName != "" {
		t.Errorf("the job is %v, as %q", job.Annotations, job.Spec.Template.Spec.ServiceAccountName)
	}
	for _, v := range job.Spec.Template.Spec.Volumes {
		if v.ConfigMap != nil {
			t.Errorf("the job needs the ConfigMap %s", v.ConfigMap.Name)
		}
	}
	args := append(slices.Clone(job.Spec.Template.Spec.Containers[0].Args), "--help")
	if out, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput(); err != nil {
		t.Errorf("outbox %v: %v\n%s", args, err, out)
	}
}

// accepted has the program read the settings with the variables of the Secret, as the container's
// arguments want them.
func accepted(t *testing.T, c *corev1.ConfigMap, args []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "outbox.yaml")
	if err := os.WriteFile(file, []byte(c.Data["outbox.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	check := []string{"config", "validate", "--for", args[0]}
	for _, a := range args[1:] {
		check = append(check, strings.Replace(a, "/etc/outbox/outbox.yaml", file, 1))
	}
	cmd := exec.CommandContext(t.Context(), binary, check...)
	cmd.Env = []string{"OUTBOX_DATABASE_URL=postgres://127.0.0.1:1/shop", "OUTBOX_SINK=redis://127.0.0.1:1"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("outbox %v: %v\n%s\n%s", check, err, out, c.Data["outbox.yaml"])
	}
}

// Values that cannot be meant are refused, by a name.
func TestRefused(t *testing.T) {
	for text, word := range map[string]string{
		"replicaCount: 3":    "replicaCount",
		"replicas: two":      "replicas",
		"parts: []":          "parts",
		"parts: [relays]":    "parts",
		"existingSecret: ''": "existingSecret",
		"config: {database: 'postgres://a:b@c/d'}":        "database",
		"config: {listen: '0.0.0.0:1'}":                   "listen",
		"image: {digest: latest}":                         "digest",
		"terminationGracePeriodSeconds: 1":                "terminationGracePeriodSeconds",
		"migrations: {sets: [everything]}":                "sets",
		"podDisruptionBudget: {maxUnavailable: 0}":        "maxUnavailable",
		"networkPolicy: {enabled: 'no'}":                  "enabled",
		"serviceMonitor: {enabled: true, interval: fast}": "interval",
	} {
		of := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &of); err != nil {
			t.Fatal(err)
		}
		if _, err := render(of); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// The plain manifests are the chart's defaults: go test ./... -run Manifests -update.
func TestManifestsAreOfTheChart(t *testing.T) {
	files, err := render(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`# Two relays, for who has no Helm. Made from deploy/helm/outbox:
#     go -C internal/test/chart test -run Manifests -update
#
#     kubectl create secret generic outbox --from-env-file=outbox.env     # OUTBOX_DATABASE_URL=…, OUTBOX_SINK=…
#     kubectl apply -f outbox.yaml
---
%s`, strings.Join(documents(files), "---\n"))
	if *update {
		if err := os.WriteFile(manifests, []byte(want), 0o644); err != nil { //nolint:gosec // a file of the project
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(manifests); err != nil || string(got) != want {
		t.Errorf("%s is not what the chart makes: go -C internal/test/chart test -run Manifests -update (%v)", manifests, err)
	}
}
