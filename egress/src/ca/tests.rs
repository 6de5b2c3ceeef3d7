use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{ServerName, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::*;

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(500_000 * 3600)
}

fn authority() -> CertificateAuthority {
    let pem = CertificateAuthority::generate("Causeway test", now()).unwrap();
    CertificateAuthority::from_pem(&pem.cert_pem, &pem.key_pem).unwrap()
}

fn name(text: &str) -> DomainName {
    DomainName::parse(text).unwrap()
}

fn verify(ca: &CertificateAuthority, leaf: &CertifiedKey, name: &str, at: SystemTime) -> bool {
    let mut roots = RootCertStore::empty();
    for cert in rustls_pemfile::certs(&mut ca.cert_pem().as_bytes()) {
        roots.add(cert.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider)
        .build()
        .unwrap();
    let at = UnixTime::since_unix_epoch(at.duration_since(SystemTime::UNIX_EPOCH).unwrap());
    let server = ServerName::try_from(name.to_owned()).unwrap();
    verifier
        .verify_server_cert(&leaf.cert[0], &[], &server, &[], at)
        .is_ok()
}

#[test]
fn a_leaf_is_valid_for_its_name_and_time_only() {
    let ca = authority();
    let leaf = ca.leaf(&name("api.example.com"), now()).unwrap();
    let valid = |name, at| verify(&ca, &leaf, name, at);
    assert!(valid("api.example.com", now()));
    assert!(valid(
        "api.example.com",
        now() - Duration::from_secs(59 * 60)
    ));
    assert!(valid(
        "api.example.com",
        now() + Duration::from_secs(24 * 6 * 3600)
    ));
    assert!(!valid(
        "api.example.com",
        now() - Duration::from_secs(2 * 3600)
    ));
    assert!(!valid(
        "api.example.com",
        now() + Duration::from_secs(24 * 8 * 3600)
    ));
    assert!(!valid("www.example.com", now()));
    assert!(!valid("x.api.example.com", now()));
    assert!(!verify(&authority(), &leaf, "api.example.com", now()));
}

#[test]
fn names_of_every_length_are_certified() {
    let ca = authority();
    let long = format!("{0}.{0}.{0}.example.com", "a".repeat(63));
    for text in [
        "a.b",
        "xn--bcher-kva.example",
        "my_host.example.com",
        long.as_str(),
    ] {
        let leaf = ca.leaf(&name(text), now()).unwrap();
        assert!(verify(&ca, &leaf, text, now()), "{text}");
    }
}

#[test]
fn the_extensions_are_what_strict_clients_want() {
    let ca = authority();
    let leaf = ca.leaf(&name("api.example.com"), now()).unwrap();
    let (_, leaf) = X509Certificate::from_der(&leaf.cert[0]).unwrap();
    let ca_der = rustls_pemfile::certs(&mut ca.cert_pem().as_bytes()).next();
    let ca_der = ca_der.unwrap().unwrap();
    let (_, ca) = X509Certificate::from_der(&ca_der).unwrap();

    let constraints = ca.basic_constraints().unwrap().unwrap();
    assert!(constraints.critical && constraints.value.ca);
    assert_eq!(constraints.value.path_len_constraint, Some(0));
    let usage = ca.key_usage().unwrap().unwrap();
    assert!(usage.critical && usage.value.key_cert_sign() && usage.value.crl_sign());
    assert!(!usage.value.digital_signature());

    let usage = leaf.key_usage().unwrap().unwrap();
    assert!(usage.value.digital_signature() && !usage.value.key_cert_sign());
    assert!(
        leaf.extended_key_usage()
            .unwrap()
            .unwrap()
            .value
            .server_auth
    );
    let san = leaf.subject_alternative_name().unwrap().unwrap();
    assert_eq!(san.value.general_names.len(), 1);
    assert!(leaf.raw_serial().len() == 16 && leaf.raw_serial()[0] < 0x80);

    let identifier = |cert: &X509Certificate<'_>, authority: bool| {
        cert.extensions()
            .iter()
            .find_map(|extension| match extension.parsed_extension() {
                x509_parser::extensions::ParsedExtension::SubjectKeyIdentifier(id)
                    if !authority =>
                {
                    Some(id.0.to_vec())
                }
                x509_parser::extensions::ParsedExtension::AuthorityKeyIdentifier(id)
                    if authority =>
                {
                    id.key_identifier.as_ref().map(|id| id.0.to_vec())
                }
                _ => None,
            })
    };
    assert_eq!(identifier(&leaf, true), identifier(&ca, false));
    assert!(identifier(&leaf, false).is_some() && identifier(&ca, false).is_some());
}

#[test]
fn leaves_are_kept_and_renewed_in_time() {
    let ca = authority();
    let mint = |text, at| ca.leaf(&name(text), at).unwrap();
    let first = mint("a.example", now());
    assert!(Arc::ptr_eq(
        &first,
        &mint("a.example", now() + Duration::from_secs(100 * 3600))
    ));
    assert!(!Arc::ptr_eq(&first, &mint("b.example", now())));
    let late = now() + Duration::from_secs(6 * 24 * 3600);
    let renewed = mint("a.example", late);
    assert!(!Arc::ptr_eq(&first, &renewed));
    assert!(verify(
        &ca,
        &renewed,
        "a.example",
        late + Duration::from_secs(6 * 24 * 3600)
    ));
    // Back in time, as after a clock was set: one that is valid there.
    assert!(verify(&ca, &mint("a.example", now()), "a.example", now()));
}

#[test]
fn many_at_once_share_one_minting() {
    let ca = authority();
    let leaves: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| ca.leaf(&name("a.example"), now()).unwrap()))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(leaves.iter().all(|leaf| Arc::ptr_eq(leaf, &leaves[0])));
}

#[test]
fn a_leaf_does_not_outlive_its_authority() {
    let ca = authority();
    let late = now() + CA_VALIDITY - Duration::from_secs(24 * 3600);
    let leaf = ca.leaf(&name("a.example"), late).unwrap();
    let (_, leaf) = X509Certificate::from_der(&leaf.cert[0]).unwrap();
    let end = (now() + CA_VALIDITY)
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    let not_after = u64::try_from(leaf.validity().not_after.timestamp()).unwrap();
    assert_eq!(not_after, end.as_secs());
    let after = now() + CA_VALIDITY;
    assert!(matches!(
        ca.leaf(&name("a.example"), after),
        Err(CaError::NotValidNow { .. })
    ));
}

#[test]
fn what_is_no_authority_is_not_loaded() {
    let ours = CertificateAuthority::generate("one", now()).unwrap();
    let other = CertificateAuthority::generate("two", now()).unwrap();
    let load = CertificateAuthority::from_pem;
    assert!(load(&ours.cert_pem, &ours.key_pem).is_ok());
    assert!(matches!(
        load(&ours.cert_pem, &other.key_pem),
        Err(CaError::KeyMismatch)
    ));
    assert!(matches!(
        load("", &ours.key_pem),
        Err(CaError::BadCertificate)
    ));
    assert!(matches!(
        load(&ours.cert_pem, "nonsense"),
        Err(CaError::BadKey)
    ));
    let key = KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(["a.example".to_owned()]).unwrap();
    let leaf = leaf.self_signed(&key).unwrap().pem();
    assert!(matches!(
        load(&leaf, &key.serialize_pem()),
        Err(CaError::NotAnAuthority)
    ));
    assert!(matches!(
        CertificateAuthority::generate("", now()),
        Err(CaError::BadName { length: 0 })
    ));
}

#[test]
fn the_key_is_in_no_debug_output() {
    let pem = CertificateAuthority::generate("Causeway test", now()).unwrap();
    let ca = CertificateAuthority::from_pem(&pem.cert_pem, &pem.key_pem).unwrap();
    assert!(pem.key_pem.contains("PRIVATE KEY"));
    assert!(!format!("{pem:?}{ca:?}").contains("PRIVATE KEY"));
}

#[test]
fn a_bundle_holds_the_system_roots_and_ours_once() {
    let pem = |name| {
        CertificateAuthority::generate(name, now())
            .unwrap()
            .cert_pem
    };
    let (one, two, ours) = (pem("one"), pem("two"), pem("ours"));
    let roots = format!("# a comment\n{one}{two}{ours}");
    let text = bundle(&roots, &ours).unwrap();
    let ders = |text: &str| -> Vec<_> {
        rustls_pemfile::certs(&mut text.as_bytes())
            .map(Result::unwrap)
            .collect()
    };
    assert_eq!(ders(&text), ders(&format!("{one}{two}{ours}")));
    assert_eq!(ders(&bundle("", &ours).unwrap()), ders(&ours));
    assert_eq!(bundle(&roots, ""), Err(BundleError::BadAuthority));
    let broken = format!("{one}-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n");
    assert_eq!(
        bundle(&broken, &ours),
        Err(BundleError::BadRoots { index: 2 })
    );
}
