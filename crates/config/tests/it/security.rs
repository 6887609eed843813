//! Secrets stay out of everything that is printed.

use crate::Case;

const SECRET: &str = "hunter2-correct-horse";

#[test]
fn a_secret_in_the_file_is_refused_without_repeating_it() {
    for text in [
        format!("packages:\n  pip:\n    credentials: {SECRET}\n"),
        format!("packages:\n  pip:\n    credentials: [{SECRET}]\n"),
        format!("packages:\n  pip:\n    credentials: {{token: {SECRET}}}\n"),
        format!("packages:\n  pip:\n    credentials: env:{SECRET} x\n"),
        format!("packages:\n  pip:\n    index: https://me:{SECRET}@packages.example.org/\n"),
        format!("packages:\n  pip:\n    credentials: \"{SECRET}\n"),
        format!("database: {{url: 'postgres://me:{SECRET}@db.example.org/sandstorm'}}\n"),
        format!("telemetry: {{otlp_headers: {{authorization: 'Bearer {SECRET}'}}}}\n"),
        format!("telemetry: {{otlp_endpoint: 'http://me:{SECRET}@127.0.0.1:4317'}}\n"),
    ] {
        let case = Case::new(&text);
        let error = case.load().unwrap_err();
        assert!(!error.to_string().contains(SECRET), "{error}");
        assert!(!format!("{error:?}").contains(SECRET), "{error:?}");
        assert!(error.to_string().contains("sandstorm.yaml:"), "{error}");
    }
    let case = Case::without_file().variable("SANDSTORM_PACKAGES_PIP_CREDENTIALS", SECRET);
    assert!(!case.error().contains(SECRET));
    let case =
        Case::without_file().variable("SANDSTORM_DATABASE_URL", &format!("postgres://me:{SECRET}@db/x"));
    assert!(!case.error().contains(SECRET) && case.error().contains("env:NAME"), "{}", case.error());
}

#[test]
fn show_and_debug_print_the_reference_only() {
    let case = Case::new("packages: {npm: {credentials: 'env:NPM_TOKEN'}}\n").variable("NPM_TOKEN", SECRET);
    let loaded = case.load().unwrap();
    let shown = loaded.show();
    assert!(shown.contains("packages.npm.credentials: env:NPM_TOKEN"), "{shown}");
    assert!(!shown.contains(SECRET) && !format!("{loaded:?}").contains(SECRET));
}
