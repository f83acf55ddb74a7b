//! `service_tier`: OpenAI's and Anthropic's words for the place in the queue.

use crate::http::error::ApiError;
use crate::http::wire::bounds::SERVICE_TIERS;

/// How urgent a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ServiceTier {
    /// Behind all others.
    Flex,
    #[default]
    Default,
    /// Before all others.
    Priority,
}

impl ServiceTier {
    /// The tier of a request.
    pub(crate) fn of(field: Option<&str>) -> Result<Self, ApiError> {
        match field {
            Some("flex") => Ok(Self::Flex),
            Some("priority") => Ok(Self::Priority),
            None => Ok(Self::Default),
            Some(known) if SERVICE_TIERS.contains(&known) => Ok(Self::Default),
            Some(other) => {
                let words = SERVICE_TIERS.join(", ");
                let message = format!("service_tier must be one of {words}, got {other:?}");
                Err(ApiError::field("service_tier", message))
            }
        }
    }

    /// As answers name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Flex => "flex",
            Self::Default => "default",
            Self::Priority => "priority",
        }
    }

    /// The place in the queue; lower comes first.
    pub(crate) fn priority(self) -> i32 {
        match self {
            Self::Flex => 1,
            Self::Default => 0,
            Self::Priority => -1,
        }
    }
}
