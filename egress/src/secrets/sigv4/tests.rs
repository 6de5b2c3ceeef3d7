use serde_json::Value;

use super::*;

/// Requests that botocore signed: see `vectors.py`.
const VECTORS: &str = include_str!("vectors.json");

fn field<'a>(vector: &'a Value, name: &str) -> &'a str {
    vector[name].as_str().unwrap()
}

fn parameter<'a>(query: &'a str, name: &str) -> &'a str {
    let mut parts = query.split('&').filter_map(|part| part.split_once('='));
    parts.find(|(key, _)| *key == name).unwrap().1
}

#[test]
fn botocore_signs_the_same() {
    let file: Value = serde_json::from_str(VECTORS).unwrap();
    let mut checked = 0;
    for vector in file["vectors"].as_array().unwrap() {
        let secret = format!("{}:{}", field(&file, "id"), field(&file, "key"));
        let credentials = Credentials::parse(secret.as_bytes()).unwrap();
        let url: http::Uri = field(vector, "url").parse().unwrap();
        let mut headers: Vec<(String, String)> =
            vec![("host".to_owned(), url.host().unwrap().to_owned())];
        for pair in vector["headers"].as_array().unwrap() {
            let text = |at: usize| pair[at].as_str().unwrap().to_owned();
            headers.push((text(0), text(1)));
        }
        let header = |name: &str| {
            let found = headers.iter().find(|(key, _)| key == name);
            found.map(|(_, value)| value.clone())
        };
        let query = url.query().unwrap_or_default();
        let (credential, time, names, expected) = if field(vector, "kind") == "query" {
            (
                parameter(query, "X-Amz-Credential").replace("%2F", "/"),
                parameter(query, "X-Amz-Date").to_owned(),
                parameter(query, "X-Amz-SignedHeaders").replace("%3B", ";"),
                parameter(query, "X-Amz-Signature").to_owned(),
            )
        } else {
            let value = header("authorization").unwrap();
            let part = |name: &str| {
                let rest = value.split_once(name).unwrap().1;
                rest.split(',').next().unwrap().trim().to_owned()
            };
            let time = header("x-amz-date").unwrap();
            (
                part("Credential="),
                time,
                part("SignedHeaders="),
                part("Signature="),
            )
        };
        let presigned = field(vector, "kind") == "query";
        let payload = match header("x-amz-content-sha256") {
            Some(given) => given,
            None if presigned && field(vector, "service") == "s3" => "UNSIGNED-PAYLOAD".to_owned(),
            None => sha256(field(vector, "body").as_bytes()),
        };
        let signed: Vec<_> = headers
            .iter()
            .filter(|(name, _)| names.split(';').any(|signed| signed == name))
            .cloned()
            .collect();
        let query: Vec<_> = query
            .split('&')
            .filter(|part| !part.starts_with("X-Amz-Signature="))
            .collect();
        let scope = Scope::parse(&credential).unwrap();
        assert!(credential.ends_with(&scope.text()));
        let signer = Signer::new(&credentials, scope, &time).unwrap();
        let signature = signer.request(&Signed {
            method: field(vector, "method"),
            path: url.path(),
            query: &query.join("&"),
            headers: &signed,
            payload: &payload,
        });
        assert_eq!(signature, expected, "{vector}");
        checked += 1;
    }
    assert!(checked >= 20);
}

/// The worked example of S3's documentation of chunked uploads.
#[test]
fn chunks_are_signed_as_documented() {
    let secret = b"AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    let credentials = Credentials::parse(secret).unwrap();
    let scope = Scope::parse("AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request").unwrap();
    let signer = Signer::new(&credentials, scope, "20130524T000000Z").unwrap();
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let headers = [
        header("content-encoding", "aws-chunked"),
        header("content-length", "66824"),
        header("host", "s3.amazonaws.com"),
        header("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
        header("x-amz-date", "20130524T000000Z"),
        header("x-amz-decoded-content-length", "66560"),
        header("x-amz-storage-class", "REDUCED_REDUNDANCY"),
    ];
    let seed = signer.request(&Signed {
        method: "PUT",
        path: "/examplebucket/chunkObject.txt",
        query: "",
        headers: &headers,
        payload: "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
    });
    assert_eq!(
        seed,
        "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
    );
    let first = signer.chunk(&seed, &vec![b'a'; 65536]);
    assert_eq!(
        first,
        "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"
    );
    let second = signer.chunk(&first, &vec![b'a'; 1024]);
    assert_eq!(
        second,
        "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"
    );
    let last = signer.chunk(&second, b"");
    assert_eq!(
        last,
        "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"
    );
}

#[test]
fn what_is_malformed_signs_nothing() {
    let secret = b"AKID:key:token";
    let credentials = Credentials::parse(secret).unwrap();
    assert_eq!(
        (credentials.id(), credentials.token()),
        ("AKID", Some("token"))
    );
    for bad in [
        "",
        "AKID",
        "AKID:",
        ":key",
        "AKID:key:",
        "AK/ID:key",
        "AKID:k ey",
        "A\r\n:k",
    ] {
        assert!(Credentials::parse(bad.as_bytes()).is_err(), "{bad:?}");
    }
    for bad in [
        "AKID/20260102/us-east-1/s3",
        "20260102/us-east-1/s3/aws4_request",
        "AKID/2026010/us-east-1/s3/aws4_request",
        "AKID/20260102//s3/aws4_request",
        "AKID/20260102/us-east-1/s 3/aws4_request",
        "AKID/20260102/us-east-1/s3/aws4_request/x",
    ] {
        assert_eq!(Scope::parse(bad), None, "{bad}");
    }
    let scope = Scope::parse("AKID/20260102/us-east-1/s3/aws4_request").unwrap();
    for bad in [
        "20260103T030405Z",
        "20260102T0304Z",
        "20260102",
        "20260102T03040xZ",
    ] {
        assert!(
            Signer::new(&credentials, scope.clone(), bad).is_none(),
            "{bad}"
        );
    }
}
