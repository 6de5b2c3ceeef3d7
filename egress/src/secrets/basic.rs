//! `Basic` credentials (RFC 7617).

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use zeroize::Zeroizing;

/// As lenient as servers are.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The credentials in a header's value, when it has any.
pub fn decode(value: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (scheme, rest) = value.split_at_checked(5)?;
    if !scheme.eq_ignore_ascii_case(b"basic") || !rest.first()?.is_ascii_whitespace() {
        return None;
    }
    LENIENT.decode(rest.trim_ascii()).ok().map(Zeroizing::new)
}

/// The header's value for credentials.
pub fn encode(credentials: &[u8]) -> Vec<u8> {
    const SCHEME: &str = "Basic ";
    let length = SCHEME.len() + credentials.len().div_ceil(3) * 4;
    // One buffer, so that no copy stays behind.
    let mut text = String::with_capacity(length);
    text.push_str(SCHEME);
    STANDARD.encode_string(credentials, &mut text);
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        assert_eq!(encode(b"user:pass"), b"Basic dXNlcjpwYXNz");
        for value in [
            "Basic dXNlcjpwYXM=",
            "basic  dXNlcjpwYXM",
            "BASIC dXNlcjpwYXM= ",
        ] {
            let decoded = decode(value.as_bytes()).unwrap();
            assert_eq!(&**decoded, b"user:pas", "{value}");
        }
        for value in [
            "",
            "Basic",
            "Basicx dXNlcg==",
            "Bearer dXNlcg==",
            "Basic d!",
        ] {
            assert!(decode(value.as_bytes()).is_none(), "{value}");
        }
    }
}
