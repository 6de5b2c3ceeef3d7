//! Making, loading and signing: everything that knows about X.509.

use std::time::{Duration, SystemTime};

use causeway_types::DomainName;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType, SerialNumber, date_time_ymd,
};
use rustls::crypto::ring::sign::{any_ecdsa_type, any_supported_type};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroizing;

use super::{BACKDATED, CA_VALIDITY, CaError, CaPem};

/// The longest common name (X.520, `ub-common-name`), in characters.
const COMMON_NAME: usize = 64;
const ORGANISATION: &str = "Causeway";

pub(super) struct Loaded {
    pub(super) issuer: Issuer<'static, KeyPair>,
    pub(super) not_before: SystemTime,
    pub(super) not_after: SystemTime,
}

pub(super) fn authority(name: &str, now: SystemTime) -> Result<CaPem, CaError> {
    let length = name.chars().count();
    if length == 0 || length > COMMON_NAME {
        return Err(CaError::BadName { length });
    }
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(CaError::Generate)?;
    let mut params = params(now - BACKDATED, now + CA_VALIDITY)?;
    params.distinguished_name.push(DnType::CommonName, name);
    // It signs leaves and nothing else: a stolen leaf key cannot become an authority.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let cert = params.self_signed(&key).map_err(CaError::Generate)?;
    Ok(CaPem {
        cert_pem: cert.pem(),
        key_pem: Zeroizing::new(key.serialize_pem()),
    })
}

pub(super) fn load(cert_pem: &str, key_pem: &str) -> Result<Loaded, CaError> {
    let cert = rustls_pemfile::certs(&mut cert_pem.as_bytes())
        .next()
        .and_then(Result::ok)
        .ok_or(CaError::BadCertificate)?;
    let (not_before, not_after) = check_authority(&cert)?;
    let key = KeyPair::from_pem(key_pem).map_err(|_unreadable| CaError::BadKey)?;
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialized_der()));
    let signing = any_supported_type(&der).map_err(|_unsupported| CaError::BadKey)?;
    CertifiedKey::new(vec![cert.clone()], signing)
        .keys_match()
        .map_err(|_differs| CaError::KeyMismatch)?;
    let issuer = Issuer::from_ca_cert_der(&cert, key).map_err(|_bad| CaError::BadCertificate)?;
    Ok(Loaded {
        issuer,
        not_before,
        not_after,
    })
}

/// Checks that the certificate may sign others, and gives its time of validity.
fn check_authority(cert: &CertificateDer<'_>) -> Result<(SystemTime, SystemTime), CaError> {
    let (rest, cert) =
        X509Certificate::from_der(cert).map_err(|_unreadable| CaError::BadCertificate)?;
    if !rest.is_empty() {
        return Err(CaError::BadCertificate);
    }
    let may_sign = match cert.key_usage() {
        Ok(usage) => usage.is_none_or(|usage| usage.value.key_cert_sign()),
        Err(_duplicate) => false,
    };
    if !cert.is_ca() || !may_sign {
        return Err(CaError::NotAnAuthority);
    }
    let validity = cert.validity();
    let times = (
        from_timestamp(validity.not_before.timestamp()),
        from_timestamp(validity.not_after.timestamp()),
    );
    match times {
        (Some(not_before), Some(not_after)) => Ok((not_before, not_after)),
        _ => Err(CaError::BadCertificate),
    }
}

fn from_timestamp(seconds: i64) -> Option<SystemTime> {
    let since = u64::try_from(seconds).unwrap_or(0);
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(since))
}

pub(super) fn leaf(
    issuer: &Issuer<'_, KeyPair>,
    name: &DomainName,
    not_before: SystemTime,
    not_after: SystemTime,
) -> Result<CertifiedKey, CaError> {
    let sign = |source| CaError::Sign {
        name: name.clone(),
        source,
    };
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(CaError::Generate)?;
    let mut params = params(not_before, not_after)?;
    // Clients match the alternative name; a subject is there for those that refuse an empty one.
    if name.as_str().len() <= COMMON_NAME {
        let subject = &mut params.distinguished_name;
        subject.push(DnType::CommonName, name.as_str());
    }
    let san = name.as_str().try_into().map_err(sign)?;
    params.subject_alt_names = vec![SanType::DnsName(san)];
    // Written out, since only then the subject key identifier is there too.
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let cert = params.signed_by(&key, issuer).map_err(sign)?;
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialized_der()));
    let signing = any_ecdsa_type(&der).map_err(|source| CaError::Tls {
        name: name.clone(),
        source,
    })?;
    Ok(CertifiedKey::new(vec![cert.into()], signing))
}

/// What every certificate has: a time, an unpredictable serial number, and our organisation.
fn params(not_before: SystemTime, not_after: SystemTime) -> Result<CertificateParams, CaError> {
    let mut params = CertificateParams::default();
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since_epoch(not_before)?;
    params.not_after = epoch + since_epoch(not_after)?;
    params.serial_number = Some(serial_number()?);
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, ORGANISATION);
    Ok(params)
}

/// Whole seconds, which is what a certificate carries; refused past the year 9999.
fn since_epoch(time: SystemTime) -> Result<Duration, CaError> {
    const LAST: u64 = 253_402_300_799;
    time.duration_since(SystemTime::UNIX_EPOCH)
        .ok()
        .filter(|since| since.as_secs() <= LAST)
        .map(|since| Duration::from_secs(since.as_secs()))
        .ok_or(CaError::Clock { now: time })
}

/// 126 random bits, positive and of 16 bytes always (RFC 5280, section 4.1.2.2).
fn serial_number() -> Result<SerialNumber, CaError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(CaError::Random)?;
    bytes[0] = (bytes[0] & 0x7f) | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}
