"""What this broker speaks.

ApiVersions (18) v0-4. KIP-35, KIP-511, KIP-584.

Behaviour: answers from the registry, so what is advertised is what works. Before authentication too. A version we do
not know is answered in version 0 with UNSUPPORTED_VERSION (see `request.dispatch`).
Versions: 1 throttle time; 2 KIP-219; 3 flexible, the client's software (KIP-511), features (KIP-584); 4 features whose
lowest version is 0 (KIP-1022).
Gaps: no features are advertised, so clients use none that needs one.
"""

from kclient_quota.broker.request.context import Context
from kclient_quota.broker.request.registry import advertised, handler
from kclient_quota.wire.messages import ApiVersionsRequest, ApiVersionsResponse


@handler(ApiVersionsRequest, min_version=0, max_version=4, before_authentication=True)
async def api_versions(context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Answer with the registry and remember the client's software."""
    context.connection.client_software = (request.client_software_name, request.client_software_version)
    return ApiVersionsResponse(api_keys=advertised(context.registry, context.cluster.manner))
