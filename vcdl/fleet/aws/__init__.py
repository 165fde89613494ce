"""Fleets on AWS: spot instances of EC2, through boto3. docs/fleet-aws.md says what a user needs there."""
