//! The file that is written for a server.
#![allow(clippy::unwrap_used)]

use super::*;

fn layout() -> Layout {
    Layout::of(Path::new("/data/a \"b\""))
}

#[test]
fn defaults_are_loopback_random_ports_and_sync_always() {
    let text = EmbeddedConfig::new("/bin/x", "/data").render(&layout(), None, 1 << 30).unwrap();
    for line in [
        "host: 127.0.0.1",
        "port: -1",
        "http: \"127.0.0.1:-1\"",
        "max_payload: 8388608",
        "  sync_interval: always",
        "  store_dir: \"/data/a \\\"b\\\"/store\"",
    ] {
        assert!(text.lines().any(|have| have == line), "{line}\n{text}");
    }
    assert!(!text.contains("{{") && !text.contains("cluster {"), "{text}");
}

#[test]
fn kept_ports_win_over_the_configured_one() {
    let mut config = EmbeddedConfig::new("/bin/x", "/data");
    config.port = Some(4000);
    let text = config.render(&layout(), None, 1 << 30).unwrap();
    assert!(text.contains("\nport: 4000\n"), "{text}");
    let ports = Ports { client: 4111, monitor: 4222 };
    let text = config.render(&layout(), Some(ports), 1 << 30).unwrap();
    assert!(text.contains("\nport: 4111\n"), "{text}");
    assert!(text.contains("127.0.0.1:4222"), "{text}");
}

#[test]
fn tags_and_cluster_are_written() {
    let mut config = EmbeddedConfig::new("/bin/x", "/data");
    config.server_tags = vec!["zone:a".to_owned(), "role:hq".to_owned()];
    config.server_name = Some("n1".to_owned());
    config.cluster = Some(ClusterConfig { name: "hq".to_owned(), port: 6001, route_ports: vec![6001, 6002] });
    let text = config.render(&layout(), None, 1 << 30).unwrap();
    assert!(text.contains("server_tags: [\"zone:a\", \"role:hq\"]"), "{text}");
    assert!(text.contains("server_name: \"n1\""), "{text}");
    assert!(text.contains("routes: [\"nats://127.0.0.1:6001\", \"nats://127.0.0.1:6002\"]"), "{text}");
}

#[test]
fn what_could_change_the_files_meaning_is_refused() {
    let mut config = EmbeddedConfig::new("/bin/x", "/data");
    config.server_name = Some("a\" } evil {".to_owned());
    let error = config.render(&layout(), None, 1 << 30).unwrap_err();
    assert_eq!(error.code(), "NATS_CONFIG_INVALID");

    config.server_name = None;
    config.cluster = Some(ClusterConfig { name: "hq".to_owned(), port: 6001, route_ports: vec![] });
    let error = config.render(&layout(), None, 1 << 30).unwrap_err();
    assert!(error.to_string().contains("server_name"), "{error}");

    let config = EmbeddedConfig::new("/bin/x", "/data");
    let error = config.render(&Layout::of(Path::new("/data/a\nb")), None, 1 << 30).unwrap_err();
    assert_eq!(error.code(), "NATS_CONFIG_INVALID");
}

#[test]
fn a_value_that_looks_like_a_field_stays_a_value() {
    let fields = [("a", "{{b}}".to_owned()), ("b", "no".to_owned())];
    assert_eq!(fill("x {{a}} {{b}} {{", &fields), "x {{b}} no {{");
}
