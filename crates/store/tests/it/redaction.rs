//! That no secret and nothing misleading reaches the audit, whatever callers hand over.

use sandstorm_store::testing::look;
use sandstorm_store::{Audit, Decision, Store, StoreConfig};
use sandstorm_types::TenantId;
use serde_json::json;

use crate::support::{Case, config, key, on_both, server};

on_both!(no_canary_gets_in, fields_are_bounded_and_on_one_line);

const CANARY: &str = "ss_abcdefghijkl_CanaryCanaryCanaryCanaryCanaryCanaryCan43";

async fn no_canary_gets_in(case: Case) {
    let audit = Audit {
        tenant: TenantId::LOCAL,
        principal: format!("key {CANARY}"),
        action: format!("{CANARY}.create"),
        object: format!("/v1?key={CANARY}"),
        decision: Decision::Denied,
        request_id: CANARY.into(),
        detail: Some(json!({
            "env": {"A": "Canary plain"},
            "Authorization": "Bearer Canary plain",
            "list": [{"password": "Canary plain"}, format!("x {CANARY}")],
            (CANARY): 1,
        })),
    };
    case.store.record_audit(&audit).await.unwrap();
    for column in ["principal", "action", "object", "request_id", "detail"] {
        let value =
            look(&case.store, &format!("SELECT {column} AS value FROM audit")).await.unwrap().remove(0);
        assert!(!value.contains("Canary"), "{column}: {value}");
        assert!(value.contains("[redacted]"), "{column}: {value}");
    }
    let report = case.store.verify_audit(&case.config.audit_key, &case.config.audit_anchor).await.unwrap();
    assert_eq!(report.tampering, []);
}

async fn fields_are_bounded_and_on_one_line(case: Case) {
    let nasty = "a\n{\"seq\": 1}\r\u{1b}[2J\u{202e}\0".repeat(10_000);
    let audit = Audit {
        tenant: TenantId::LOCAL,
        principal: nasty.clone(),
        action: nasty.clone(),
        object: nasty.clone(),
        decision: Decision::Allowed,
        request_id: nasty.clone(),
        detail: Some(json!({(nasty.clone()): nasty})),
    };
    case.store.record_audit(&audit).await.unwrap();
    for (column, most) in
        [("principal", 128), ("action", 64), ("object", 512), ("request_id", 128), ("detail", 4096)]
    {
        let value =
            look(&case.store, &format!("SELECT {column} AS value FROM audit")).await.unwrap().remove(0);
        assert!(value.len() <= most && value.contains("sha256:"), "{column}: {} bytes", value.len());
        assert!(
            !value.chars().any(|character| character.is_control() || character == '\u{202e}'),
            "{column}"
        );
    }
    let report = case.store.verify_audit(&case.config.audit_key, &case.config.audit_anchor).await.unwrap();
    assert_eq!(report.tampering, []);
}

#[tokio::test]
async fn an_open_store_does_not_print_its_password() {
    let Some(server) = server() else { return };
    // The server trusts everybody on its socket, with or without a password.
    let url = server.database().await.unwrap().replace("sandstorm@", "sandstorm:Canary@");
    assert!(url.contains("Canary"));
    let (config, _directory) = config(Some(url));
    let store = Store::open(&config).await.unwrap();
    assert!(!format!("{store:?}").contains("Canary"));
}

#[test]
fn what_is_printed_for_debugging_holds_no_secret() {
    let (mut config, _directory) = config(Some("postgres://me:Canary@host/db".into()));
    config.checkpoint_every = 1;
    let StoreConfig { audit_key, .. } = &config;
    let row = key(TenantId::LOCAL, "id");
    let printed = format!("{config:?} {audit_key:?} {row:?}");
    assert!(
        !printed.contains("Canary") && !printed.contains("7, 7") && !printed.contains("255"),
        "{printed}"
    );
}
