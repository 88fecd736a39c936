//! What is said about input that is wrong.

use expect_test::{Expect, expect};

use super::{mock_worker, parse_line, problems, serve};
use crate::{DiscoveryBackend, Environment};

#[track_caller]
fn check(line: &str, environment: &[(&str, &str)], expected: Expect) {
    expected.assert_eq(&problems(line, environment).join("\n"));
}

#[test]
fn everything_wrong_is_reported_together() {
    check(
        "serve --http-prot 80 --router-mode fastest --http-host localhost stray --router-temperature -1 --tokenizer",
        &[("DYN_HTTP_BODY_LIMIT_MB", "lots"), ("DYN_ROUTER_TRACK_ACTIVE_BLOCKS", "maybe")],
        expect![[r#"
            --http-prot: is not known; did you mean `--http-port`?
            stray: is not expected; options of `roost serve` begin with `--`
            --tokenizer: needs a value: one of fastokens, default
            --http-host: `localhost` is not an IP address
            DYN_HTTP_BODY_LIMIT_MB: `lots` is not a size from 1 to 4096 MiB (a number of MiB, or with a unit such as `45MiB`, `8GB`)
            --router-mode: `fastest` is not one of kv, round-robin, random, power-of-two, least-loaded, direct
            --router-temperature: `-1` is not a number of at least 0
            DYN_ROUTER_TRACK_ACTIVE_BLOCKS: `maybe` is not true, 1, yes, on or false, 0, no, off"#]],
    );
}

#[test]
fn what_dynamo_has_and_roost_has_not_is_refused_by_name() {
    check(
        "serve --enable-rl --request-plane nats --router-mode device-aware-weighted --aic-tp-size 2",
        &[("DYN_HTTP_SVC_EMB_PATH", "/embed"), ("DYN_CHAT_PROCESSOR", "vllm")],
        expect![[r#"
            DYN_HTTP_SVC_EMB_PATH: not available in this build: `/embed` is refused, only `/v1/embeddings` is accepted
            --router-mode: `device-aware-weighted` is not available in this build; accepted: kv, round-robin, random, power-of-two, least-loaded, direct
            --request-plane: `nats` is not available in this build; accepted: tcp
            DYN_CHAT_PROCESSOR: processing in Python is not available: `vllm` is refused, only `dynamo` is accepted
            --aic-tp-size: not available in this build: `2` is refused, leave it unset
            --enable-rl: not available in this build: `true` is refused, only `false` is accepted"#]],
    );
}

#[test]
fn routes_are_paths_of_their_own() {
    check(
        "serve --http-svc-chat-path /health --http-svc-models-path models --http-svc-anthropic-path /ready/",
        &[],
        expect![[r#"
            --http-svc-anthropic-path: `/ready` is the path of another route
            --http-svc-models-path: `models` is not a path
            --http-svc-health-path: `/health` is the path of another route"#]],
    );
    let paths =
        serve("serve --http-svc-chat-path /chat/", &[("DYN_HTTP_SVC_ANTHROPIC_PATH", "/claude")]).http.paths;
    assert_eq!((paths.chat.as_str(), paths.messages.as_str()), ("/chat", "/claude"));
}

#[test]
fn a_refused_option_at_its_default_is_nothing_to_refuse() {
    let line = "serve --no-enable-rl --router-queue-policy fcfs \
                --router-queue-threshold None";
    let environment = [("DYN_SERVE_INDEXER", "false"), ("DYN_SHARED_CACHE_TYPE", "none")];
    assert!(serve(line, &environment).notices.is_empty());
}

#[test]
fn an_option_without_effect_says_so() {
    let noticed =
        serve("serve --router-event-threads 8 --enforce-disagg", &[("DYN_ROUTER_RESET_STATES", "1")]);
    expect![[r#"
        --router-event-threads has no effect: the index of this build has no such thread pool
        --enforce-disagg has no effect: the topology follows from the registered workers
        DYN_ROUTER_RESET_STATES has no effect: it has no meaning since Dynamo 1.6"#]]
    .assert_eq(&noticed.notices.join("\n"));
}

#[test]
fn kubernetes_as_a_pod_knows_it() {
    let pod = [
        ("DYN_DISCOVERY_BACKEND", "kubernetes"),
        ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
        ("KUBERNETES_SERVICE_PORT", "443"),
        ("KUBERNETES_PORT", "tcp://10.96.0.1:443"),
        ("POD_NAME", "frontend-0"),
        ("POD_UID", "1b7f"),
        ("POD_NAMESPACE", "serving"),
    ];
    let served = serve("serve", &pod);
    let DiscoveryBackend::Kubernetes(found) = &served.discovery.backend else { panic!("asked for") };
    assert_eq!(found.server.as_deref(), Some("https://10.96.0.1:443"));
    assert_eq!(found.namespace.as_deref(), Some("serving"));
    assert_eq!((found.pod_name.as_deref(), found.pod_uid.as_deref()), (Some("frontend-0"), Some("1b7f")));
    assert!(!found.containers);
    assert!(served.notices.is_empty(), "{:?}", served.notices);

    let elsewhere = serve("serve --discovery-backend kubernetes --kube-service-host fd00::1", &[]);
    let DiscoveryBackend::Kubernetes(found) = &elsewhere.discovery.backend else { panic!("asked for") };
    assert_eq!(found.server.as_deref(), Some("https://[fd00::1]:443"));
    // Set in every pod, whatever is used for discovery.
    let other = [&pod[1..], &[("DYN_DISCOVERY_BACKEND", "file")]].concat();
    assert!(serve("serve", &other).notices.is_empty());
}

#[test]
fn etcd_and_what_belongs_to_it() {
    let given = [
        ("ETCD_ENDPOINTS", "http://infra-0:2379, https://infra-1:2379,"),
        ("ETCD_AUTH_USERNAME", "roost"),
        ("ETCD_AUTH_PASSWORD", "hunter2"),
    ];
    let served = serve("serve", &given);
    let DiscoveryBackend::Etcd(etcd) = &served.discovery.backend else { panic!("etcd is the default") };
    assert_eq!(etcd.endpoints, ["http://infra-0:2379", "https://infra-1:2379"]);
    assert_eq!(etcd.user, Some(("roost".to_owned(), "hunter2".to_owned())));
    assert!(!format!("{served:?}").contains("hunter2"), "a password is printed nowhere");
    let dumped = served.effective.to_toml();
    assert!(dumped.contains("# etcd-auth-password is set by ETCD_AUTH_PASSWORD and not shown\n"), "{dumped}");

    let chosen = [("ETCD_ENDPOINTS", "http://infra:2379"), ("DYN_DISCOVERY_BACKEND", "file")];
    assert_eq!(
        serve("serve", &chosen).notices,
        ["ETCD_ENDPOINTS has no effect: the discovery backend is file"]
    );
    check(
        "mock-worker --etcd-auth-client-key key.pem",
        &[("ETCD_AUTH_USERNAME", "roost")],
        expect![[r#"
            ETCD_AUTH_USERNAME: is of no use without --etcd-auth-password
            --etcd-auth-client-key: is of no use without --etcd-auth-client-cert"#]],
    );
}

#[test]
fn unclear_flags() {
    check(
        "serve --router-k 1 --http-port --strict-fields=perhaps --no-strict-fields=1",
        &[],
        expect![[r#"
            --router-k: could be --router-kv-events, --router-kv-overlap-score-credit, --router-kv-overlap-score-credit-decay, --router-kv-overlap-score-weight
            --http-port: needs a value: a whole number from 0 to 65535
            --no-strict-fields: takes no value
            --strict-fields: `perhaps` is not true, 1, yes, on or false, 0, no, off"#]],
    );
    check(
        "serve --kv-blocks 4 --max-model-len 4096",
        &[],
        expect![[r#"
        --kv-blocks: is an option of `roost mock-worker`, not of `roost serve`
        --max-model-len: is not known"#]],
    );
}

#[test]
fn bounds_of_buckets_must_be_in_order() {
    check(
        "serve --metrics-ttft-min 500",
        &[],
        expect!["--metrics-ttft-min: 500 must be below the highest bound, which is 480 (--metrics-ttft-max)"],
    );
}

#[test]
fn a_command_that_does_not_exist() {
    check("sevre", &[], expect!["sevre: is not a command; did you mean `serve`?"]);
    check(
        "help mock",
        &[],
        expect![
            "mock: is not a command; there are serve, check, worker, mock-worker, demo, explain, top, replay-routing, bench and help"
        ],
    );
}

#[test]
fn a_misspelt_variable_of_ours_is_noticed() {
    let noticed =
        serve("serve", &[("ROOST_HTP_PORT", "1"), ("ROOST_SERVICE_HOST", "10.0.0.1"), ("ROOST_X", "1")]);
    assert_eq!(noticed.notices, ["ROOST_HTP_PORT is not a known variable; did you mean ROOST_HTTP_PORT?"]);
}

#[test]
fn variables_of_workers_are_none_of_our_business() {
    let environment =
        [("DYN_SYSTEM_PORT", "8081"), ("DYN_TCP_WORKER_POOL_SIZE", "1"), ("DYN_SGL_GATEWAY_WORKERS", "8")];
    assert!(serve("serve", &environment).notices.is_empty());
}

#[test]
fn the_whole_message() {
    let problems = parse_line("serve --http-port x --nope", &[]).expect_err("two mistakes");
    expect![[r#"
        2 problems with the configuration:
          --nope: is not known
          --http-port: `x` is not a whole number from 0 to 65535
        see `roost help serve`"#]]
    .assert_eq(&problems.to_string());
}

#[test]
fn mock_workers_publish_where_they_are_told() {
    let given = [("NATS_SERVER", "tls://nats-0:4222"), ("NATS_AUTH_TOKEN", "hunter2")];
    assert!(mock_worker("mock-worker", &given).plane.nats.is_none(), "a server alone decides nothing");
    let worker = mock_worker("mock-worker --event-plane nats", &given);
    assert!(!format!("{worker:?}").contains("hunter2"), "a token is printed nowhere");
    let nats = worker.plane.nats.expect("asked for");
    assert_eq!((nats.servers.as_str(), nats.token.as_deref()), ("tls://nats-0:4222", Some("hunter2")));
    let elsewhere = mock_worker("mock-worker --event-plane-host 10.0.0.9", &[]);
    assert_eq!(elsewhere.plane.event_host.as_deref(), Some("10.0.0.9"));
}

#[test]
fn conditional_disaggregation_needs_what_it_decides_by() {
    check(
        "serve --router-conditional-disagg --router-conditional-disagg-config {\"policy\":\"prefill_load\"} \
         --no-router-kv-events",
        &[],
        expect![[r#"
            --router-conditional-disagg: needs --router-mode kv
            --router-conditional-disagg: needs --router-kv-events
            --router-conditional-disagg-config: this policy needs prefill_busy_threshold, or --router-queue-threshold in its place"#]],
    );
    check(
        "serve",
        &[("DYN_ROUTER_CONDITIONAL_DISAGG_CONFIG", r#"{"policy": "best"}"#)],
        expect![[r#"
        DYN_ROUTER_CONDITIONAL_DISAGG_CONFIG: unknown variant `best`, expected one of `isl_bounding`, `prefill_load`, `isl_or_load` at line 1 column 17; a JSON object with any of policy (isl_bounding, prefill_load, isl_or_load), eff_isl_threshold, eff_isl_ratio_threshold, prefill_busy_threshold and decode_busy_threshold
        DYN_ROUTER_CONDITIONAL_DISAGG_CONFIG: is of no use without --router-conditional-disagg"#]],
    );
    check(
        "serve --router-mode kv --router-conditional-disagg",
        &[("DYN_ROUTER_CONDITIONAL_DISAGG_CONFIG", r#"{"eff_isl_ratio_threshold": 2}"#)],
        expect![
            "DYN_ROUTER_CONDITIONAL_DISAGG_CONFIG: eff_isl_ratio_threshold must be from 0 to 1; a JSON object with any of policy (isl_bounding, prefill_load, isl_or_load), eff_isl_threshold, eff_isl_ratio_threshold, prefill_busy_threshold and decode_busy_threshold"
        ],
    );
    let options = serve(
        "serve --router-mode kv --router-conditional-disagg --router-queue-threshold 0.5",
        &[("DYN_ROUTER_CONDITIONAL_DISAGG_CONFIG", r#"{"policy": "isl_or_load", "eff_isl_threshold": 100}"#)],
    );
    assert_eq!(
        options.router.local_prefill,
        Some(crate::LocalPrefillOptions {
            policy: crate::LocalPrefillPolicy::IslOrLoad,
            new_tokens: 100,
            new_share: 0.7,
            prefill_busy: Some(0.5),
            decode_busy: None,
        })
    );
    assert_eq!(serve("serve", &[]).router.local_prefill, None);
}

/// No secret is in what is printed: not in the effective configuration, not in the banner's entries, not in what a
/// mistake beside it says, whichever way it was given.
#[test]
fn secrets_are_never_shown() {
    let mut seen = 0;
    for command in crate::table::COMMANDS {
        let options = command.sections.iter().flat_map(|section| section.options);
        for spec in options.filter(|spec| spec.secret) {
            let flag = format!("--{}=s3cr3t-words", spec.name);
            let variable = (spec.roost_env(), "s3cr3t-words".to_owned());
            for (flags, variables) in [(vec![&*flag], vec![]), (vec![], vec![variable])] {
                let with = |more: &'static str| {
                    let line = std::iter::once(command.name).chain(flags.clone()).chain([more]);
                    crate::parse(
                        line.filter(|word| !word.is_empty()),
                        &variables.iter().cloned().collect::<Environment>(),
                    )
                };
                let mut shown = format!("{:?}", with("--no-such-flag").unwrap_err());
                shown += &with("--no-such-flag").unwrap_err().to_string();
                shown += &format!("{:?}", with(""));
                if command.reads_config_file {
                    shown += &format!("{:?}", with("--dump-config"));
                }
                assert!(!shown.contains("s3cr3t"), "{} {}: {shown}", command.name, spec.name);
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "{seen}");
}
