"""What this broker speaks.

ApiVersions (18) v0-4 · UpdateFeatures (57) v0-2. KIP-35, KIP-511, KIP-584, KIP-1022.

Behaviour: answers from the registry, so what is advertised is what works. Before authentication too. A version we do
not know is answered in version 0 with UNSUPPORTED_VERSION (see `request.dispatch`). Features and levels are those of
Apache Kafka 4.3.1 as far as they mean something here (`configs.features`): clients that are told of
`transaction.version` 2 leave out AddPartitionsToTxn. What UpdateFeatures finalizes is kept in `data_dir`; all of a
request or nothing. Brokers that throttle like another vendor's have no features.
Versions: ApiVersions 1 throttle time; 2 KIP-219; 3 flexible, the client's software (KIP-511), features (KIP-584); 4
features whose lowest version is 0 (KIP-1022). UpdateFeatures 1 kinds of downgrades, trial runs; 2 one error of the
whole.
Gaps: `metadata.version` and `kraft.version` are told and kept, and change nothing; `eligible.leader.replicas.version`
changes only `min.insync.replicas` (`configs.eligible_replicas`): a replica that is up is in sync here.
"""

from kclient_quota.broker.configs import eligible_replicas
from kclient_quota.broker.configs.features import SAFE_DOWNGRADE, UPGRADE, level, supported, update_problem
from kclient_quota.broker.request.context import Context
from kclient_quota.broker.request.registry import advertised, handler
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_FEATURES_SINCE, _LEVEL_ZERO_SINCE = 3, 4
_KINDS_OF_DOWNGRADE_SINCE = 1
_ONE_ERROR_SINCE = 2


@handler(ApiVersionsRequest, min_version=0, max_version=4, before_authentication=True)
async def api_versions(context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Answer with the registry and remember the client's software."""
    cluster = context.cluster
    context.connection.client_software = (request.client_software_name, request.client_software_version)
    response = ApiVersionsResponse(api_keys=advertised(context.registry, cluster.manner))
    if context.api_version < _FEATURES_SINCE or cluster.manner.absent:
        return response
    features = supported(context.registry)
    response.supported_features = [
        ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=levels.least, max_version=levels.most)
        for name, levels in features.items()
        if levels.least or context.api_version >= _LEVEL_ZERO_SINCE
    ]
    response.finalized_features_epoch = len(cluster.features)
    response.finalized_features = [
        ApiVersionsResponse.FinalizedFeatureKey(name=name, min_version_level=now, max_version_level=now)
        for name in features
        if (now := level(cluster.features, name))
    ]
    return response


@handler(UpdateFeaturesRequest, min_version=0, max_version=2)
async def update_features(context: Context, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Finalize other levels: all of them, or none if one cannot be."""
    cluster, known = context.cluster, supported(context.registry)
    problems = {}
    for update in request.feature_updates:
        upgrade_type = update.upgrade_type
        if context.api_version < _KINDS_OF_DOWNGRADE_SINCE:
            upgrade_type = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
        present = level(cluster.features, update.feature) if update.feature in known else 0
        problems[update.feature] = update_problem(
            known.get(update.feature), present, update.feature, update.max_version_level, upgrade_type
        )
    failed = next(((name, words) for name, words in problems.items() if words), None)
    if failed is None and not request.validate_only:
        for update in request.feature_updates:
            cluster.features[update.feature] = update.max_version_level
            cluster.changed("feature", update.feature)
        eligible_replicas.settle(cluster)
    if failed is None:
        response = UpdateFeaturesResponse(error_code=0, error_message=None)
    else:
        message = f"The update failed for all features since the following feature had an error: {failed[1]}"
        response = UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=message)
    if failed is None and context.api_version < _ONE_ERROR_SINCE:
        response.results = [
            UpdateFeaturesResponse.UpdatableFeatureResult(feature=name, error_code=0, error_message=None)
            for name in problems
        ]
    return response
