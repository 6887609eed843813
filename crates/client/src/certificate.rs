//! Why a server's certificate was refused: the TLS library's words, translated into what to do.

/// How the TLS library begins when it refuses a certificate.
const REFUSED: &str = "invalid peer certificate: ";

/// The cause of a failed connection in words that say what to do; any other cause as it is.
pub(crate) fn explained(cause: String) -> String {
    let Some((_, why)) = cause.split_once(REFUSED) else { return cause };
    if why.contains("CaUsedAsEndEntity") {
        return "its certificate is that of a certificate authority (CA:TRUE), which no server may show; give \
                `serve.tls.cert` one that says CA:FALSE, as `openssl req -x509 … -addext \
                basicConstraints=critical,CA:FALSE` makes it"
            .to_owned();
    }
    if why.contains("UnknownIssuer") {
        return "this machine does not know who signed its certificate; name the signer's certificate in SSL_CERT_FILE, or \
                add it to those of the system"
            .to_owned();
    }
    if why.contains("not valid for name") || why.contains("NotValidForName") {
        return format!("its certificate is for another name ({why}); use a name that it has in the URL");
    }
    if why.contains("expired") || why.contains("Expired") {
        return format!("its certificate has expired ({why}); renew `serve.tls.cert` and restart the server");
    }
    format!(
        "its certificate is refused ({why}); SSL_CERT_FILE names a certificate to trust instead of those of the system"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_says_what_to_do() {
        let said = [
            "invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))",
            "invalid peer certificate: UnknownIssuer",
            "invalid peer certificate: certificate not valid for name \"127.0.0.1\"; certificate is only valid for \
             DnsName(\"localhost\")",
            "invalid peer certificate: certificate expired: verification time 2 (UNIX), but certificate is not valid after 1",
            "invalid peer certificate: BadSignature",
            "Connection refused (os error 111)",
        ];
        let told = said.map(|cause| explained(cause.to_owned()));
        let starts = [
            "its certificate is that of a certificate authority (CA:TRUE), which no server may show; give `serve.tls.cert` one",
            "this machine does not know who signed its certificate; name the signer's certificate in SSL_CERT_FILE",
            "its certificate is for another name (certificate not valid for name \"127.0.0.1\"",
            "its certificate has expired (certificate expired: ",
            "its certificate is refused (BadSignature); SSL_CERT_FILE",
            "Connection refused (os error 111)",
        ];
        for (told, start) in told.iter().zip(starts) {
            assert!(told.starts_with(start), "{told}");
        }
        assert!(!told[0].contains("CaUsedAsEndEntity"), "{}", told[0]);
    }
}
