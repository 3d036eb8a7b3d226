"""The independent implementations our codec is held against.

kafka-python reads its schemas through an importlib function that Python 3.11 deprecates, so it is imported, and its
message modules too, with those warnings switched off.
"""

import warnings

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="(read|open)_text is deprecated", category=DeprecationWarning)
    import kafka.protocol.admin as kafka_admin
    import kafka.protocol.consumer as kafka_consumer
    import kafka.protocol.metadata as kafka_metadata
    import kafka.protocol.producer as kafka_producer
    import kafka.protocol.sasl as kafka_sasl
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

KAFKA_PYTHON_MODULES = (kafka_admin, kafka_consumer, kafka_metadata, kafka_producer, kafka_sasl)

__all__ = ["KAFKA_PYTHON_MODULES", "KafkaPythonBatch", "KafkaPythonBuilder"]
