"""Fleets on AWS: spot instances of EC2, through boto3. What a user must have there is in docs/fleet-aws.md."""
