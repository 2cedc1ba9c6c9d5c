//! The errors of TLS in words that name the cause.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

use super::client_certificate::CertificateRequest;

/// Returns the cause of an error, or `None` if TLS is not the cause. `is_accepted` is whether the server has sent
/// anything after the handshake.
pub(super) fn reason(
    error: &io::Error,
    request: &CertificateRequest,
    is_accepted: bool,
) -> Option<String> {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let reason = match inner {
        Some(Error::InvalidCertificate(error)) => of_server(error),
        Some(Error::AlertReceived(alert)) => of_alert(*alert, request),
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            "the server does not speak TLS at this port".to_owned()
        }
        Some(error) => error.to_string(),
        // The end of the connection without an alert.
        None if is_accepted || !request.is_made() => return None,
        None => format!("{}: {error}", refused_client(request)),
    };
    Some(reason)
}

/// Explains why the certificate of the server is refused.
fn of_server(error: &CertificateError) -> String {
    use CertificateError::{BadSignature, Expired, ExpiredContext, NotValidYet, UnknownIssuer};

    match error {
        UnknownIssuer | BadSignature => format!(
            "no trusted authority has signed the certificate of the server ({error}); if the authority is your own, set \
             tls_ca"
        ),
        Expired => "the certificate of the server has expired".to_owned(),
        ExpiredContext { time, not_after } => {
            let ago = time.as_secs().saturating_sub(not_after.as_secs());
            format!("the certificate of the server has expired {ago} seconds ago")
        }
        NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("the certificate of the server is not valid yet ({error})")
        }
        error => format!("the certificate of the server is refused: {error}"),
    }
}

/// Explains an alert of the server.
fn of_alert(alert: AlertDescription, request: &CertificateRequest) -> String {
    use AlertDescription as Alert;

    match alert {
        Alert::CertificateRequired => refused_client(request),
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::AccessDenied
        | Alert::DecryptError
        // With TLS 1.2.
        | Alert::HandshakeFailure
            if request.is_made() =>
        {
            format!("{} (alert {alert:?})", refused_client(request))
        }
        Alert::ProtocolVersion => {
            "the server has no version of TLS in common with this client, which has 1.2 and 1.3"
                .to_owned()
        }
        alert => format!("the server has refused the connection (alert {alert:?})"),
    }
}

fn refused_client(request: &CertificateRequest) -> String {
    if request.has_certificate() {
        "the server has refused the client certificate".to_owned()
    } else {
        "the server requires a client certificate, and none is configured (tls_cert, tls_key)"
            .to_owned()
    }
}
