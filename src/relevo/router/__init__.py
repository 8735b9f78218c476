"""The job router: which worker, of those able and free, gets this job?"""
