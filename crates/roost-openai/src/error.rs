use bytes::{BufMut, BytesMut};

use crate::json::{write_string, write_u64};

/// An error as a client reads it: HTTP status, message, and the member at fault when there is one.
///
/// The message says what to do and carries no path, address or worker text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{status} {message}")]
pub struct ApiError {
    status: u16,
    message: String,
    param: Option<String>,
    code: Option<&'static str>,
}

/// Which error body clients get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ErrorShape {
    /// Flat members as Dynamo's frontend writes them, and OpenAI's `error` member beside them.
    #[default]
    Both,
    /// Only `{"message","type","code"}`.
    Dynamo,
    /// Only `{"error":{…}}`.
    OpenAi,
    /// Anthropic's `{"type":"error","error":{"type","message"}}`, for its routes.
    Anthropic,
}

impl ApiError {
    /// An error with a status and a message.
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        ApiError { status, message: bounded(message.into()), param: None, code: None }
    }

    /// 400: the request is wrong; `param` names the member.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        let param = param.into();
        ApiError {
            status: 400,
            message: bounded(message.into()),
            param: if param.is_empty() { None } else { Some(param) },
            code: None,
        }
    }

    /// 400: prompt and answer do not fit; worded so that clients recognise it.
    pub fn context_length(limit: u64, actual: u64) -> Self {
        ApiError {
            status: 400,
            message: format!(
                "This model's maximum context length is {limit} tokens. However, your request needs {actual} \
                 tokens. Please shorten the messages or lower the number of output tokens."
            ),
            param: Some("messages".into()),
            code: Some("context_length_exceeded"),
        }
    }

    /// 400: an engine has found that prompt and answer do not fit, and said so in words of its own.
    pub fn context_length_said(text: &str) -> Self {
        let worded = if text.contains("maximum context length") {
            text.to_owned()
        } else {
            format!("The request exceeds this model's maximum context length. {text}")
        };
        ApiError { code: Some("context_length_exceeded"), ..Self::invalid("messages", worded) }
    }

    /// 404: no such model.
    pub fn model_not_found(model: &str) -> Self {
        let shown: String = model.chars().take(128).collect();
        ApiError {
            status: 404,
            message: format!(
                "The model `{shown}` does not exist. GET /v1/models lists the models served here."
            ),
            param: Some("model".into()),
            code: Some("model_not_found"),
        }
    }

    /// 501: a member that is known and not implemented.
    pub fn not_implemented(param: &str, message: impl Into<String>) -> Self {
        ApiError {
            status: 501,
            message: message.into(),
            param: Some(param.into()),
            code: Some("not_implemented"),
        }
    }

    /// Adds an OpenAI error code.
    #[must_use]
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// HTTP status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Text for the client.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The member at fault.
    pub fn param(&self) -> Option<&str> {
        self.param.as_deref()
    }

    /// Writes the HTTP body.
    pub fn write_body(&self, out: &mut BytesMut, shape: ErrorShape) {
        if shape == ErrorShape::Anthropic {
            return self.write_anthropic(out);
        }
        out.put_u8(b'{');
        if shape != ErrorShape::OpenAi {
            out.put_slice(b"\"message\":");
            write_string(out, &self.message);
            out.put_slice(b",\"type\":");
            write_string(out, self.reason_phrase());
            out.put_slice(b",\"code\":");
            write_u64(out, u64::from(self.status));
        }
        if shape == ErrorShape::Both {
            out.put_u8(b',');
        }
        if shape != ErrorShape::Dynamo {
            out.put_slice(b"\"error\":{\"message\":");
            write_string(out, &self.message);
            out.put_slice(b",\"type\":");
            write_string(out, self.openai_type());
            out.put_slice(b",\"code\":");
            match self.code {
                Some(code) => write_string(out, code),
                None => out.put_slice(b"null"),
            }
            out.put_slice(b",\"param\":");
            match &self.param {
                Some(param) => write_string(out, param),
                None => out.put_slice(b"null"),
            }
            out.put_u8(b'}');
        }
        out.put_u8(b'}');
    }

    /// Writes Anthropic's envelope.
    pub fn write_anthropic(&self, out: &mut BytesMut) {
        out.put_slice(b"{\"type\":\"error\",\"error\":{\"type\":");
        write_string(out, self.anthropic_type());
        out.put_slice(b",\"message\":");
        write_string(out, &self.message);
        out.put_slice(b"}}");
    }

    /// Writes the error as an event of a stream whose headers have gone out; `request_id` is what the head said.
    pub fn write_event(&self, out: &mut BytesMut, request_id: Option<&str>) {
        out.put_slice(b"data: {\"error\":{\"message\":");
        write_string(out, &self.message);
        out.put_slice(b",\"type\":");
        write_string(out, self.openai_type());
        out.put_slice(b",\"code\":");
        write_u64(out, u64::from(self.status));
        if let Some(id) = request_id {
            out.put_slice(b",\"request_id\":");
            write_string(out, id);
        }
        out.put_slice(b"}}\n\n");
    }

    fn reason_phrase(&self) -> &'static str {
        match self.status {
            400 => "Bad Request",
            401 => "Unauthorized",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            413 => "Payload Too Large",
            415 => "Unsupported Media Type",
            429 => "Too Many Requests",
            431 => "Request Header Fields Too Large",
            499 => "Client Closed Request",
            500 => "Internal Server Error",
            501 => "Not Implemented",
            502 => "Bad Gateway",
            503 => "Service Unavailable",
            504 => "Gateway Timeout",
            529 => "Overloaded",
            _ => "Error",
        }
    }

    fn anthropic_type(&self) -> &'static str {
        match self.status {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            400..=499 => "invalid_request_error",
            503 | 529 => "overloaded_error",
            504 => "timeout_error",
            _ => "api_error",
        }
    }

    fn openai_type(&self) -> &'static str {
        match self.status {
            404 => "not_found_error",
            429 | 529 => "overloaded_error",
            400..=499 => "invalid_request_error",
            501 => "not_implemented_error",
            503 => "service_unavailable",
            504 => "timeout_error",
            _ => "internal_server_error",
        }
    }
}

/// Longest message in bytes. What a client sent may be part of it, whatever its size.
const MESSAGE_LIMIT: usize = 1000;

fn bounded(mut message: String) -> String {
    if message.len() > MESSAGE_LIMIT {
        let mut end = MESSAGE_LIMIT;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(error: ApiError, shape: ErrorShape, expected: Expect) {
        let mut out = BytesMut::new();
        error.write_body(&mut out, shape);
        serde_json::from_slice::<serde_json::Value>(&out).unwrap();
        expected.assert_eq(std::str::from_utf8(&out).unwrap());
    }

    #[test]
    fn bodies_by_shape() {
        let e = ApiError::invalid("messages", "say \"what\"");
        check(
            e.clone(),
            ErrorShape::Both,
            expect![[
                r#"{"message":"say \"what\"","type":"Bad Request","code":400,"error":{"message":"say \"what\"","type":"invalid_request_error","code":null,"param":"messages"}}"#
            ]],
        );
        check(
            e.clone(),
            ErrorShape::Dynamo,
            expect![[r#"{"message":"say \"what\"","type":"Bad Request","code":400}"#]],
        );
        check(
            e,
            ErrorShape::OpenAi,
            expect![[
                r#"{"error":{"message":"say \"what\"","type":"invalid_request_error","code":null,"param":"messages"}}"#
            ]],
        );
    }

    #[test]
    fn events_carry_the_status() {
        let mut out = BytesMut::new();
        ApiError::new(503, "gone").write_event(&mut out, None);
        ApiError::new(503, "gone").write_event(&mut out, Some("r-1"));
        expect![[r#"
            data: {"error":{"message":"gone","type":"service_unavailable","code":503}}

            data: {"error":{"message":"gone","type":"service_unavailable","code":503,"request_id":"r-1"}}

        "#]]
        .assert_eq(std::str::from_utf8(&out).unwrap());
    }

    #[test]
    fn messages_are_bounded() {
        let error = ApiError::invalid("stop", "ä".repeat(10_000));
        assert!(error.message().len() < 1010 && error.message().ends_with('…'));
    }

    #[test]
    fn overflow_is_worded_for_clients() {
        assert!(ApiError::context_length(4096, 5000).message().contains("maximum context length"));
    }
}
